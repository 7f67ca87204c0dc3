"""When a framework's checkpoint is marked as complete, and when its mark goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frameworks.worker import said

pytestmark = pytest.mark.frameworks


def test_hugging_faces_is_marked_before_older_ones_go_and_before_the_scripts_own_callback(
    tmp_path: Path,
) -> None:
    lines = said(
        tmp_path,
        """
        from pathlib import Path
        import shutil, torch, transformers

        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(1, 1)
            def forward(self, x):
                return {"loss": self.layer(x).square().mean()}

        def marks():
            return sorted(path.parent.name for path in Path("out").glob("*/bftrainer.json"))

        class Uploads(transformers.TrainerCallback):
            def on_save(self, *_, **__):
                print("on_save", *marks())

        rmtree = shutil.rmtree
        def remove(path, **options):
            print("removes", Path(path).name, "of", *marks())
            rmtree(path, **options)
        shutil.rmtree = remove

        arguments = transformers.TrainingArguments(
            "out", max_steps=4, save_steps=2, save_total_limit=1, per_device_train_batch_size=1,
            report_to="none", use_cpu=True, disable_tqdm=True, remove_unused_columns=False)
        rows = [{"x": torch.ones(1)}] * 4
        transformers.Trainer(
            Model(), arguments, train_dataset=rows, callbacks=[Uploads()]).train()
        """,
    )
    assert [line for line in lines if line.startswith(("on_save", "removes"))] == [
        "on_save checkpoint-2",
        "removes checkpoint-2 of checkpoint-2 checkpoint-4",
        "on_save checkpoint-4",
    ]


def test_lightning_removes_a_mark_with_its_checkpoint_and_renames_it_with_it(
    tmp_path: Path,
) -> None:
    lines = said(
        tmp_path,
        """
        from pathlib import Path
        import lightning, torch
        from bftrainer_slurm.elastic.callbacks.lightning import Elastic

        class Model(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(1, 1)
            def training_step(self, batch, _):
                return self.layer(batch[0]).square().mean()
            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), 0.01)

        data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(4, 1)))
        trainer = lightning.Trainer(
            accelerator="cpu", max_epochs=3, default_root_dir="out", logger=False,
            enable_progress_bar=False, enable_model_summary=False)
        trainer.fit(Model(), data)
        print(*sorted(path.name for path in Path("out/checkpoints").iterdir()))
        (ours,) = (one for one in trainer.callbacks if isinstance(one, Elastic))
        ours._save(trainer)
        print(*sorted(path.name for path in ours.folder.iterdir()))
        """,
    )
    last = "epoch=2-step=12.ckpt"
    assert lines[-2:] == [f"{last} {last}.bftrainer.json", "last.ckpt last.ckpt.bftrainer.json"]
