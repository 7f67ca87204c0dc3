"""Lightning's Trainer, for two processes of one node."""

import time

import lightning
import torch
from reporting import PAUSE_S, Report


class Tiny(lightning.LightningModule):
    """One layer; its loss means nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def on_train_start(self) -> None:
        """Find out who trains together."""
        self.report = Report(self.trainer.global_rank, self.trainer.world_size)

    def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
        """Return the loss, and report."""
        self.report.step()
        time.sleep(PAUSE_S)
        return torch.square(self.layer(batch)).mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.SGD(self.parameters(), lr=0.01)


if __name__ == "__main__":
    torch.set_num_threads(1)
    data = torch.utils.data.DataLoader(torch.randn(100_000, 8), batch_size=4)
    lightning.Trainer(
        accelerator="cpu",
        devices=2,
        num_nodes=1,
        strategy="ddp",
        max_epochs=-1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    ).fit(Tiny(), data)
