"""The report of a search: a page with the leaderboard and plots."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import jinja2
import numpy as np
from markupsafe import Markup
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from sklearn.metrics import ConfusionMatrixDisplay

from dl4all.automl.networks import source
from dl4all.automl.targets import ClassTargets
from dl4all.io.files import write_text
from dl4all.search.plots import figures

if TYPE_CHECKING:
    from dl4all.automl.estimators import AutoClassifier, AutoRegressor

MOST_CLASSES = 20
"""Classes up to which the confusions of each with each are drawn."""

TITLES = {"history": "Loss of the trials", "importances": "Hyperparameters that the loss depends on"}
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Found networks</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 14px; }
th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid #ddd; white-space: nowrap; }
figure { margin: 2rem 0; } figure svg { max-width: 100%; height: auto; }
pre { background: #f5f5f5; padding: 1rem; overflow-x: auto; }
</style>
</head>
<body>
<h1>Found networks</h1>
<p>{{ "%.4f"|format(score) }} {{ metric }} on rows that no network of the ensemble was trained on:
{{ members }} of {{ trials }} networks are in it.</p>
<h2>Leaderboard</h2>
<div class="wide">{{ table }}</div>
<h2>Best network</h2>
<pre>{{ network }}</pre>
{% for title, plot in plots %}
<figure><h2>{{ title }}</h2>{{ plot }}</figure>
{% endfor %}
</body>
</html>
"""


def write_report(estimator: AutoClassifier | AutoRegressor, file: Path) -> None:
    """Write the page of a fitted estimator, which needs nothing else to be shown."""
    board, targets = estimator.leaderboard_, estimator.targets_
    page = jinja2.Environment(autoescape=True).from_string(PAGE)
    text = page.render(
        score=board.loc["ensemble", "score"],
        metric=targets.metric,
        members=len(estimator.members_),
        trials=len(estimator.study_.trials),
        # pandas escapes what the table holds, matplotlib what its pictures hold
        table=Markup(board.to_html(float_format="%.4g", na_rep="", border=0)),
        network=source(estimator.winner_.networks[0]),
        plots=[(title, Markup(svg)) for title, svg in _plots(estimator)],
    )
    write_text(file, text)


def _plots(estimator: AutoClassifier | AutoRegressor) -> list[tuple[str, str]]:
    """Titles and pictures."""
    of_study = figures(estimator.study_)
    drawn = [(TITLES[name], figure) for name, figure in of_study.items()]
    truth, predicted = estimator.held_out_targets_, estimator.held_out_predictions_
    figure = Figure(figsize=(6, 6))
    axes = figure.add_subplot()
    if not isinstance(estimator.targets_, ClassTargets):
        axes.scatter(truth, predicted, s=8, alpha=0.5)
        ends = [float(np.min(truth)), float(np.max(truth))]
        axes.plot(ends, ends, color="gray", linewidth=1)
        axes.set(xlabel="target", ylabel="prediction")
        drawn.append(("Predictions of rows held out", figure))
    elif len(estimator.targets_.labels) <= MOST_CLASSES:
        ConfusionMatrixDisplay.from_predictions(
            truth, predicted, ax=axes, xticks_rotation="vertical", colorbar=False
        )
        drawn.append(("Confusions of rows held out", figure))
    pictures = [(title, _svg(figure)) for title, figure in drawn]
    for figure in of_study.values():
        plt.close(figure)
    return pictures


def _svg(figure: Figure) -> str:
    """A picture as an element of a page."""
    written = io.StringIO()
    figure.savefig(written, format="svg", bbox_inches="tight")
    return written.getvalue().partition("<svg")[2].join(("<svg", ""))
