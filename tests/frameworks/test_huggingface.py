"""What the Hugging Face Trainer that rescales in process refuses.

Transformers is imported in the tests: other lanes collect this file where it is not installed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.frameworks.learning import Model, Rows

pytestmark = pytest.mark.frameworks


def trainer(folder: Path, **options: Any) -> Any:
    from bftrainer_slurm.elastic.inprocess.huggingface import Trainer, TrainingArguments

    own = {"report_to": "none", "max_steps": 10, "remove_unused_columns": False}
    arguments = TrainingArguments(str(folder), **(own | options))
    return Trainer(Model(), arguments, train_dataset=Rows(20))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gradient_accumulation_steps", 2),
        ("auto_find_batch_size", True),
        ("dataloader_drop_last", True),
        ("include_num_input_tokens_seen", "all"),
    ],
)
def test_what_does_not_train_in_process_is_refused_by_its_name(
    tmp_path: Path, name: str, value: object
) -> None:
    with pytest.raises(ValueError, match=f"not in process: {name};"):
        trainer(tmp_path, **{name: value})


def test_transformers_own_arguments_are_refused(tmp_path: Path) -> None:
    import transformers

    from bftrainer_slurm.elastic.inprocess.huggingface import Trainer

    with pytest.raises(TypeError, match=r"inprocess\.huggingface\.TrainingArguments"):
        Trainer(Model(), transformers.TrainingArguments(str(tmp_path)), train_dataset=Rows(20))


def test_epochs_need_a_batch_size_that_does_not_depend_on_the_nodes(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="give max_steps, or batch='global'"):
        trainer(tmp_path, max_steps=-1).train()
