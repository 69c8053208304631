"""The best network alone, and the script that trains it again."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import joblib

from dl4all.automl.networks import source, training_settings
from dl4all.io import save
from dl4all.io.files import replaced, write_text

if TYPE_CHECKING:
    from dl4all.automl.estimators import AutoClassifier, AutoRegressor

SCRIPT = '''"""Trains a found network: {score} {value:.4f} on rows that it was not trained on.

python train.py [DATA [FOLDER]]

Writes network.safetensors, and the fitted features and targets beside it, to FOLDER (that of this script).
"""

from __future__ import annotations

import sys
from pathlib import Path

import joblib

import dl4all as dl

DATA = {data!r}
READING = {reading!r}  # arguments of dl.automl.read
SETTINGS = dl.automl.TrainingSettings(
{settings})
SEED = {seed}


def network() -> dl.nn.Module:
    """The network, untrained."""
    return {network}


def main() -> None:
    """Train it, and say how well it knows the rows that it was trained on."""
    data = sys.argv[1] if len(sys.argv) > 1 else DATA
    folder = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(__file__).parent
    x, y = dl.automl.read(data, **READING)
    features, targets = dl.automl.{features}, dl.automl.{targets}
    dl.manual_seed(SEED)
    model = dl.automl.train(network(), features.fit_transform(x), targets.fit(y), SETTINGS, seed=SEED)
    predicted = targets.decoded(targets.predictions(dl.automl.outputs(model, features.transform(x))))
    print(f"{score} {{targets.score(y, predicted):.4f}} on the rows that it was trained on")
    folder.mkdir(parents=True, exist_ok=True)
    dl.save(model.state_dict(), folder / "network.safetensors")
    joblib.dump((features, targets), folder / "features.joblib")


if __name__ == "__main__":
    main()
'''


def write_winner(
    estimator: AutoClassifier | AutoRegressor, folder: Path, data: str | Path, reading: dict[str, Any]
) -> None:
    """Write the best network, its features and targets, and the script that trains it again."""
    folder.mkdir(parents=True, exist_ok=True)
    (network,), features = estimator.winner_.networks, estimator.winner_.features
    targets, values = estimator.targets_, estimator.best_params_
    save(network.state_dict(), folder / "network.safetensors")
    with replaced(folder / "features.joblib") as draft:
        joblib.dump((features, targets), draft)
    row = estimator.leaderboard_.loc[f"trial {estimator.winner_.trial}"]
    settings = training_settings(values)
    changed = {
        field.name: getattr(settings, field.name)
        for field in fields(settings)
        if getattr(settings, field.name) != field.default
    }
    scaler = values.get("scaler")
    script = SCRIPT.format(
        score=targets.metric,
        value=row["score"],
        data=str(data),
        reading=reading,
        settings="".join(f"    {name}={value!r},\n" for name, value in changed.items()),
        seed=estimator.seed or 0,
        network=source(network, "    "),
        features=f"table_features(x, {scaler!r})" if scaler else "ChannelScaler()",
        targets=f"{type(targets).__name__}()",
    )
    write_text(folder / "train.py", script)
