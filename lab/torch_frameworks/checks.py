"""The checks of ``python -m lab.torch_frameworks``, on the device that DL4ALL_DEVICE names; prints JSON."""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Callable, Iterable
from typing import Any

import datasets
import diffusers
import mlflow
import numpy as np
import pyarrow
import torch
import torchmetrics
import torchmetrics.image as metrics_of_images
import torchmetrics.text as metrics_of_text

import dl4all as dl
import dl4all.torch

ROWS, CLASSES = 200, 5


def main() -> None:
    torch.manual_seed(0)
    dl.manual_seed(0)
    found = {**metrics(), **networks(), **columns(), **tracking()}
    print(json.dumps(found))


def difference(found: Iterable[Any], wanted: Iterable[Any]) -> float:
    """The largest difference over the largest element; both may hold nothing in places."""
    pairs = [
        (a.detach().cpu().double(), b.detach().double())
        for a, b in zip(found, wanted, strict=True)
        if b is not None
    ]
    largest = torch.stack([b.abs().max() for _, b in pairs]).max()
    return float(torch.stack([(a - b).abs().max() for a, b in pairs]).max() / largest.clamp(min=1e-30))


def metrics() -> dict[str, float]:
    """torchmetrics: states that grow over two updates, and what becomes of them."""
    probabilities, classes = torch.randn(ROWS, CLASSES).softmax(1), torch.randint(CLASSES, (ROWS,))
    score = torch.rand(ROWS)
    relevant = (score + 0.3 * torch.randn(ROWS) > 0.5).long()
    truth = torch.randn(ROWS)
    guess = truth + 0.3 * torch.randn(ROWS)
    image = torch.rand(4, 3, 32, 32)
    noisy = (image + 0.1 * torch.rand_like(image)).clamp(0, 1)
    several: dict[str, Any] = {"task": "multiclass", "num_classes": CLASSES}
    of_classes, of_scores, of_numbers = (probabilities, classes), (score, relevant), (guess, truth)
    cases: dict[str, tuple[Any, tuple[torch.Tensor, ...]]] = {
        "Accuracy": (torchmetrics.Accuracy(**several, top_k=2), of_classes),
        "F1Score": (torchmetrics.F1Score(**several, average="macro"), of_classes),
        "AUROC": (torchmetrics.AUROC(**several), of_classes),
        "ConfusionMatrix": (torchmetrics.ConfusionMatrix(**several), of_classes),
        "CalibrationError": (torchmetrics.CalibrationError(**several), of_classes),
        "CohenKappa": (torchmetrics.CohenKappa(**several), of_classes),
        "MatthewsCorrCoef": (torchmetrics.MatthewsCorrCoef(**several), of_classes),
        "JaccardIndex": (torchmetrics.JaccardIndex(**several), of_classes),
        "AveragePrecision": (torchmetrics.AveragePrecision(task="binary"), of_scores),
        "ROC": (torchmetrics.ROC(task="binary", thresholds=20), of_scores),
        "MeanSquaredError": (torchmetrics.MeanSquaredError(), of_numbers),
        "R2Score": (torchmetrics.R2Score(), of_numbers),
        "PearsonCorrCoef": (torchmetrics.PearsonCorrCoef(), of_numbers),
        "SpearmanCorrCoef": (torchmetrics.SpearmanCorrCoef(), of_numbers),
        "ExplainedVariance": (torchmetrics.ExplainedVariance(), of_numbers),
        "KendallRankCorrCoef": (torchmetrics.KendallRankCorrCoef(), (guess[:50], truth[:50])),
        "PeakSignalNoiseRatio": (metrics_of_images.PeakSignalNoiseRatio(data_range=1.0), (noisy, image)),
        "StructuralSimilarity": (
            metrics_of_images.StructuralSimilarityIndexMeasure(data_range=1.0), (noisy, image)
        ),
        "TotalVariation": (metrics_of_images.TotalVariation(), (image,)),
        "Perplexity": (metrics_of_text.Perplexity(), (torch.randn(4, 8, 5), torch.randint(5, (4, 8)))),
    }  # fmt: skip

    def computed(metric: Any, values: tuple[torch.Tensor, ...], device: str) -> tuple[Any, ...]:
        metric = copy.deepcopy(metric).to(device)
        half = len(values[0]) // 2
        for part in (slice(half), slice(half, None)):
            metric.update(*(value[part].to(device) for value in values))
        result = metric.compute()
        return result if isinstance(result, tuple) else (result,)

    return {
        f"torchmetrics {name}": difference(computed(*case, "dlall"), computed(*case, "cpu"))
        for name, case in cases.items()
    }


def networks() -> dict[str, float]:
    """diffusers: results and gradients of its networks, and an image of a pipeline."""
    latent, image, step = torch.randn(2, 4, 16, 16), torch.randn(2, 3, 16, 16), torch.tensor([3, 7])
    text = torch.randn(2, 7, 24)
    unet = diffusers.UNet2DModel(
        sample_size=16, block_out_channels=(32, 64), down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"), layers_per_block=1, norm_num_groups=8,
    )  # fmt: skip
    of_text = diffusers.UNet2DConditionModel(
        sample_size=16, block_out_channels=(32, 64), down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), layers_per_block=1, norm_num_groups=8,
        cross_attention_dim=24, attention_head_dim=8,
    )  # fmt: skip
    coder = diffusers.AutoencoderKL(
        block_out_channels=(32, 64), down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2, norm_num_groups=8,
    )  # fmt: skip
    dit = diffusers.DiTTransformer2DModel(
        num_attention_heads=2, attention_head_dim=16, in_channels=4, num_layers=2, sample_size=16,
        num_embeds_ada_norm=10, norm_num_groups=4,
    )  # fmt: skip
    sd3 = diffusers.SD3Transformer2DModel(
        sample_size=16, patch_size=2, in_channels=4, num_layers=2, attention_head_dim=16,
        num_attention_heads=2, joint_attention_dim=24, caption_projection_dim=32, pooled_projection_dim=20,
        out_channels=4,
    )  # fmt: skip
    cases: dict[str, tuple[Any, dict[str, torch.Tensor]]] = {
        "UNet2DModel": (unet, {"sample": image, "timestep": step}),
        "UNet2DConditionModel": (
            of_text, {"sample": latent, "timestep": step, "encoder_hidden_states": text}
        ),
        "AutoencoderKL": (coder, {"sample": image}),
        "DiTTransformer2DModel": (
            dit, {"hidden_states": latent, "timestep": step, "class_labels": torch.tensor([1, 2])}
        ),
        "SD3Transformer2DModel": (
            sd3, {"hidden_states": latent, "timestep": step, "encoder_hidden_states": text,
                  "pooled_projections": torch.randn(2, 20)},
        ),
    }  # fmt: skip

    def computed(model: Any, inputs: dict[str, torch.Tensor], device: str) -> tuple[list[Any], list[Any]]:
        model = copy.deepcopy(model).eval().to(device)
        result = model(**{name: value.to(device) for name, value in inputs.items()}).sample
        result.square().mean().backward()
        return [result], [parameter.grad for parameter in model.parameters()]

    found = {}
    for name, (model, inputs) in cases.items():
        here, cpu = (computed(model, inputs, device) for device in ("dlall", "cpu"))
        for kind, a, b in zip(("result", "gradients"), here, cpu, strict=True):
            found[f"diffusers {name}, {kind}"] = difference(a, b)
    images = [_sampled(unet, device) for device in ("dlall", "cpu")]
    return {**found, "diffusers DDIMPipeline": difference(*([image] for image in images))}


def _sampled(unet: Any, device: str) -> torch.Tensor:
    """An image of a pipeline with a generator of the CPU."""
    pipeline = diffusers.DDIMPipeline(copy.deepcopy(unet), diffusers.DDIMScheduler(num_train_timesteps=100))
    pipeline.set_progress_bar_config(disable=True)
    pipeline.to(device)
    made = pipeline(num_inference_steps=4, output_type="np", generator=torch.Generator().manual_seed(1))
    return torch.from_numpy(made.images)


def columns() -> dict[str, float]:
    """datasets to the device; dl4all's tensors as columns of Arrow and of datasets, and back."""
    x, ids = dl.rand(7, 3, 2), dl.arange(7)
    made = datasets.Dataset.from_dict({"x": x, "id": ids})
    there = made.with_format("torch", device="dlall")[:]
    if there["x"].device.type != "dlall":
        raise SystemExit(f"datasets gave a tensor on {there['x'].device}")
    arrays: dict[str, Callable[[], Any]] = {
        "datasets to dlall": lambda: there["x"].cpu(),
        "datasets of dl4all": lambda: torch.tensor(made.with_format("numpy")["x"][:]),
        "pyarrow of dl4all": lambda: torch.tensor(pyarrow.array(x).to_pylist()),
        "pyarrow of dl4all, transposed": lambda: torch.tensor(pyarrow.array(x.mT).to_pylist()).mT,
    }
    wanted = torch.tensor(np.array(x.tolist()))
    found = {name: difference([read()], [wanted]) for name, read in arrays.items()}
    found["pyarrow of integers"] = difference(
        [torch.tensor(pyarrow.array(ids).to_pylist())], [torch.arange(7)]
    )
    sizes = {shape: len(pyarrow.array(dl.zeros(shape))) for shape in ((0, 3), (4, 0), (2, 0, 3))}
    found["pyarrow without elements"] = float(any(shape[0] != size for shape, size in sizes.items()))
    return found


def tracking() -> dict[str, float]:
    """The callback of docs/training.md, whose numbers MLflow keeps."""
    with tempfile.TemporaryDirectory() as folder:
        mlflow.set_tracking_uri(f"{folder}/runs")  # mlflow-skinny has no database
        net = dl.models.MLP(2, hidden=[4], num_classes=1)
        trainer = dl.Trainer(
            net, dl.nn.MSELoss(), dl.optim.SGD(net.parameters(), lr=0.1), progress=False,
            callbacks=[lambda trainer, row: mlflow.log_metrics(row, step=row["epoch"])],
        )  # fmt: skip
        loader = dl.data.DataLoader(dl.data.TensorDataset(dl.rand(8, 2), dl.rand(8, 1)), 4)
        with mlflow.start_run() as run:
            history = trainer.fit(loader, epochs=3)
        client = mlflow.MlflowClient()
        kept = [entry.value for entry in client.get_metric_history(run.info.run_id, "loss")]
        losses = [row["loss"] for row in history.rows]
    return {"MLflow": difference([torch.tensor(kept)], [torch.tensor(losses)])}


if __name__ == "__main__":
    main()
