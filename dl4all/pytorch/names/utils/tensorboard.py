"""``torch.utils.tensorboard``: curves, histograms, images and texts for TensorBoard, without TensorFlow."""

from __future__ import annotations

import datetime
import io
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from dl4all.errors import ArgumentError, BackendMissingError, ShapeError
from dl4all.tensor.tensor import Tensor

__all__ = ["SummaryWriter"]

Array = npt.NDArray[Any]


class SummaryWriter:
    """Writes what ``tensorboard --logdir runs`` shows.

    Args:
        log_dir: the folder of the event file; by default ``runs/DATE_HOST`` with `comment` at its end.
        comment: see `log_dir`.
        purge_step: values of this step and later ones that an older file in the folder has are hidden.
        max_queue: how many values may wait before they are written.
        flush_secs: how many seconds they may wait.
        filename_suffix: the end of the event file's name.

    Raises:
        BackendMissingError: the package tensorboard is not installed.

    Example:
        >>> import tempfile
        >>> from dl4all.utils.tensorboard import SummaryWriter
        >>> with SummaryWriter(tempfile.mkdtemp()) as writer:
        ...     for step in range(3):
        ...         writer.add_scalar("loss", 1 / (1 + step), step)
    """

    def __init__(
        self,
        log_dir: str | Path | None = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: int = 120,
        filename_suffix: str = "",
    ) -> None:
        if log_dir is None or log_dir == "":
            now = datetime.datetime.now().strftime("%b%d_%H-%M-%S")
            log_dir = Path("runs", f"{now}_{socket.gethostname()}{comment}")
        self.log_dir = str(log_dir)
        self._options = (max_queue, flush_secs, filename_suffix)
        self._proto = _Protocol()
        self._writer = self._proto.writer(self.log_dir, *self._options)
        self._parts: dict[str, SummaryWriter] = {}  # of add_scalars and add_hparams, by folder
        if purge_step is not None:
            self._writer.add_event(self._proto.purge(purge_step))

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def get_logdir(self) -> str:
        """The folder of the event file."""
        return self.log_dir

    def flush(self) -> None:
        """Write everything that waits to the disk."""
        for writer in (self, *self._parts.values()):
            writer._writer.flush()

    def close(self) -> None:
        """Write everything and close the files; nothing can be written afterwards."""
        for writer in (self, *self._parts.values()):
            writer._writer.close()

    def add_scalar(
        self,
        tag: str,
        scalar_value: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        new_style: bool = False,
        double_precision: bool = False,
    ) -> None:
        """Add a point to a curve.

        Args:
            tag: the curve's name.
            scalar_value: a number, or a tensor of one element.
            global_step: where the point is.
            walltime: its time in seconds since 1970; by default now.
            new_style: accepted; values are written in the form that every TensorBoard reads.
            double_precision: accepted; TensorBoard keeps float32.

        Raises:
            ShapeError: the value has several elements.
        """
        self._add(global_step, walltime, tag=tag, simple_value=_number("add_scalar", scalar_value))

    def add_scalars(
        self,
        main_tag: str,
        tag_scalar_dict: Mapping[str, Any],
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """Add points to several curves of one picture, each from a file in a folder of its own.

        Args:
            main_tag: the picture's name.
            tag_scalar_dict: the curves' names and values.
            global_step: where the points are.
            walltime: their time.
        """
        for tag, value in tag_scalar_dict.items():
            folder = f"{main_tag.replace('/', '_')}_{tag}"
            self._part(folder).add_scalar(main_tag, value, global_step, walltime)

    def add_histogram(
        self,
        tag: str,
        values: Any,
        global_step: int | None = None,
        bins: str | Any = "tensorflow",
        walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:
        """Add the distribution of values.

        Args:
            tag: its name.
            values: a tensor or an array of any shape.
            global_step: where it is.
            bins: "tensorflow" for bins that grow by a tenth, or what ``numpy.histogram`` takes.
            walltime: its time.
            max_bins: how many bins there may be; neighbours are added together.

        Raises:
            ArgumentError: there are no values.
        """
        numbers = _array(values).astype(np.float64).reshape(-1)
        if not numbers.size:
            raise ArgumentError("[add_histogram] expected at least one value, got none")
        edges = _growing_bins() if isinstance(bins, str) and bins == "tensorflow" else bins
        counts, limits = np.histogram(numbers, edges)
        if max_bins is not None and len(counts) > max_bins:
            step = -(-len(counts) // max_bins)
            counts = np.add.reduceat(counts, np.arange(0, len(counts), step))
            limits = np.append(limits[:-1:step], limits[-1])
        full = np.flatnonzero(counts)
        start, stop = (int(full[0]), int(full[-1]) + 1) if full.size else (0, len(counts))
        # TensorBoard has the upper limits of bins: the first one, which is empty, gives the next one's lower.
        histogram = self._proto.histogram(
            min=float(numbers.min()),
            max=float(numbers.max()),
            num=numbers.size,
            sum=float(numbers.sum()),
            sum_squares=float(numbers @ numbers),
            bucket_limit=limits[start : stop + 1].tolist(),
            bucket=[0.0, *counts[start:stop].astype(np.float64).tolist()],
        )
        self._add(global_step, walltime, tag=tag, histo=histogram)

    def add_image(
        self,
        tag: str,
        img_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:
        """Add an image.

        Args:
            tag: its name.
            img_tensor: a tensor or an array of 1, 3 or 4 channels: uint8, or floats from 0 to 1.
            global_step: where it is.
            walltime: its time.
            dataformats: what its axes are: CHW, HWC or HW.

        Raises:
            ShapeError: the shape does not fit to `dataformats`.
            BackendMissingError: Pillow is not installed.
        """
        pixels = _pixels("add_image", img_tensor, dataformats)
        image = self._proto.image(
            height=pixels.shape[0], width=pixels.shape[1], colorspace=pixels.shape[2],
            encoded_image_string=_png(pixels),
        )  # fmt: skip
        self._add(global_step, walltime, tag=tag, image=image)

    def add_images(
        self,
        tag: str,
        img_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:
        """Add the images of a batch, side by side in a square.

        Args:
            tag: their name.
            img_tensor: a tensor or an array as for :meth:`add_image`, with one axis more.
            global_step: where they are.
            walltime: their time.
            dataformats: what its axes are: NCHW or NHWC.

        Raises:
            ShapeError: the shape does not fit to `dataformats`.
        """
        batch = _array(img_tensor)
        if len(dataformats) != 4 or batch.ndim != 4 or not dataformats.upper().startswith("N"):
            raise ShapeError(
                f"[add_images] expected a batch of axes {dataformats}, as NCHW, got shape {batch.shape}"
            )
        images = [_pixels("add_images", image, dataformats[1:]) for image in batch]
        columns = int(np.ceil(np.sqrt(max(1, len(images)))))
        blank = np.zeros_like(images[0]) if images else np.zeros((1, 1, 1), np.uint8)
        images += [blank] * (-len(images) % columns)
        rows = [np.concatenate(images[i : i + columns], 1) for i in range(0, len(images), columns)]
        grid = np.concatenate(rows) if rows else blank
        self.add_image(tag, grid, global_step, walltime, "HWC")

    def add_figure(
        self,
        tag: str,
        figure: Any,
        global_step: int | None = None,
        close: bool = True,
        walltime: float | None = None,
    ) -> None:
        """Add a figure of matplotlib as an image.

        Args:
            tag: its name.
            figure: the figure.
            global_step: where it is.
            close: close the figure.
            walltime: its time.
        """
        import matplotlib.pyplot as plt

        figure.canvas.draw()
        self.add_image(tag, np.asarray(figure.canvas.buffer_rgba()), global_step, walltime, "HWC")
        if close:
            plt.close(figure)

    def add_text(
        self, tag: str, text_string: str, global_step: int | None = None, walltime: float | None = None
    ) -> None:
        """Add a text, in Markdown.

        Args:
            tag: its name.
            text_string: the text.
            global_step: where it is.
            walltime: its time.
        """
        self._add(global_step, walltime, tag=f"{tag}/text_summary", **self._proto.text(text_string))

    def add_hparams(
        self,
        hparam_dict: Mapping[str, Any],
        metric_dict: Mapping[str, Any],
        hparam_domain_discrete: Mapping[str, list[Any]] | None = None,
        run_name: str | None = None,
        global_step: int | None = None,
    ) -> None:
        """Add a row to the table of runs: options and what came of them.

        Args:
            hparam_dict: options by name: numbers, booleans or texts.
            metric_dict: results by name.
            hparam_domain_discrete: the values that options can have.
            run_name: the folder of the row; by default the time.
            global_step: where the results are.

        Raises:
            ArgumentError: an option is no number, boolean or text.
        """
        writer = self._part(run_name or str(time.time()))
        for tag, metadata in self._proto.hparams(hparam_dict, metric_dict, hparam_domain_discrete or {}):
            writer._add(None, None, tag=tag, metadata=metadata)
        for name, value in metric_dict.items():
            writer.add_scalar(name, value, global_step)

    def add_graph(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse: TensorBoard draws TensorFlow's graphs; ``dl.compile`` shows dl4all's.

        Raises:
            ArgumentError: always.
        """
        raise ArgumentError("[add_graph] TensorBoard draws TensorFlow's graphs; see model.summary() instead")

    def add_embedding(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse: the projector reads files of its own.

        Raises:
            ArgumentError: always.
        """
        raise ArgumentError("[add_embedding] is not planned; write the vectors as TSV for the projector")

    def _part(self, folder: str) -> SummaryWriter:
        """The writer of a folder in this one's."""
        if folder not in self._parts:
            self._parts[folder] = SummaryWriter(Path(self.log_dir, folder), "", None, *self._options)
        return self._parts[folder]

    def _add(self, step: int | None, walltime: float | None, **value: Any) -> None:
        event = self._proto.event(value, time.time() if walltime is None else walltime)
        if step is not None:
            event.step = int(step)
        self._writer.add_event(event)


class _Protocol:
    """The messages of TensorBoard's event files, from its package.

    Raises:
        BackendMissingError: it is not installed.
    """

    def __init__(self) -> None:
        try:
            from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2
            from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2
            from tensorboard.plugins.text import metadata as text_metadata
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError:
            raise BackendMissingError(
                "[SummaryWriter] the package is not installed: pip install tensorboard"
            ) from None
        self._event, self._summary, self._tensor = event_pb2, summary_pb2, tensor_pb2
        self._api, self._hparams, self._plugin, self._text = api_pb2, metadata, plugin_data_pb2, text_metadata
        self.writer = EventFileWriter
        self.histogram, self.image = summary_pb2.HistogramProto, summary_pb2.Summary.Image

    def event(self, value: Mapping[str, Any], walltime: float) -> Any:
        summary = self._summary.Summary(value=[self._summary.Summary.Value(**value)])
        return self._event.Event(wall_time=walltime, summary=summary)

    def purge(self, step: int) -> Any:
        log = self._event.SessionLog(status=self._event.SessionLog.START)
        return self._event.Event(step=step, wall_time=time.time(), session_log=log)

    def text(self, text: str) -> dict[str, Any]:
        shape = {"dim": [{"size": 1}]}
        tensor = self._tensor.TensorProto(dtype="DT_STRING", string_val=[text.encode()], tensor_shape=shape)
        return {"tensor": tensor, "metadata": self._text.create_summary_metadata("", "")}

    def hparams(
        self, options: Mapping[str, Any], metrics: Mapping[str, Any], domains: Mapping[str, list[Any]]
    ) -> list[tuple[str, Any]]:
        """Tags and metadata: what there is to compare, that the run has begun, and that it has ended."""
        api, data = self._api, self._plugin.HParamsPluginData
        started = self._plugin.SessionStartInfo()
        infos = []
        for name, value in options.items():
            number = value.item() if isinstance(value, (Tensor, np.generic)) else value
            info = api.HParamInfo(name=name)
            if isinstance(number, bool):
                info.type, started.hparams[name].bool_value = api.DATA_TYPE_BOOL, number
            elif isinstance(number, (int, float)):
                info.type, started.hparams[name].number_value = api.DATA_TYPE_FLOAT64, number
            elif isinstance(number, str):
                info.type, started.hparams[name].string_value = api.DATA_TYPE_STRING, number
            else:
                raise ArgumentError(
                    f"[add_hparams] {name} must be a number, a boolean or a text, got {type(value).__name__}"
                )
            if name in domains:
                info.domain_discrete.extend(domains[name])
            infos.append(info)
        columns = [api.MetricInfo(name=api.MetricName(tag=name)) for name in metrics]
        experiment = api.Experiment(hparam_infos=infos, metric_infos=columns)
        ended = self._plugin.SessionEndInfo(status=api.Status.Value("STATUS_SUCCESS"))
        return [
            (
                self._hparams.EXPERIMENT_TAG,
                self._hparams.create_summary_metadata(data(experiment=experiment)),
            ),
            (
                self._hparams.SESSION_START_INFO_TAG,
                self._hparams.create_summary_metadata(data(session_start_info=started)),
            ),
            (
                self._hparams.SESSION_END_INFO_TAG,
                self._hparams.create_summary_metadata(data(session_end_info=ended)),
            ),
        ]


def _array(values: Any) -> Array:
    return values.detach().numpy() if isinstance(values, Tensor) else np.asarray(values)


def _number(name: str, value: Any) -> float:
    array = _array(value)
    if array.size != 1:
        raise ShapeError(f"[{name}] expected one number, got shape {array.shape}")
    return float(array.reshape(()))


def _growing_bins() -> Array:
    """Edges that grow by a tenth from 1e-12 to 1e20, to both sides of 0."""
    positive = 1e-12 * 1.1 ** np.arange(774)
    return np.concatenate([-positive[::-1], [0.0], positive])


def _pixels(name: str, image: Any, axes: str) -> Array:
    """An image as uint8 of shape (height, width, channels).

    Raises:
        ShapeError: it has other axes, or no 1, 3 or 4 channels.
    """
    array, axes = _array(image), axes.upper()
    if sorted(axes) not in (["C", "H", "W"], ["H", "W"]) or array.ndim != len(axes):
        raise ShapeError(f"[{name}] expected an image of axes {axes}, such as CHW, got shape {array.shape}")
    array = array[..., None] if len(axes) == 2 else array
    array = array.transpose([(axes if len(axes) == 3 else f"{axes}C").index(axis) for axis in "HWC"])
    if array.shape[2] not in (1, 3, 4):
        raise ShapeError(f"[{name}] expected 1, 3 or 4 channels, got {array.shape[2]}")
    if array.dtype == np.uint8:
        return array
    return np.asarray(np.clip(array.astype(np.float64) * 255, 0, 255).astype(np.uint8))


def _png(pixels: Array) -> bytes:
    try:
        import PIL.Image
    except ImportError as error:
        raise BackendMissingError("[add_image] needs Pillow: pip install pillow") from error
    stream = io.BytesIO()
    image = pixels[:, :, 0] if pixels.shape[2] == 1 else pixels
    PIL.Image.fromarray(np.ascontiguousarray(image)).save(stream, "PNG")
    return stream.getvalue()
