"""Data sets, samplers, batches, and image transforms as in torchvision."""

from __future__ import annotations

from dl4all.data import transforms
from dl4all.data.batch import collate, default_collate, default_convert
from dl4all.data.dataset import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    TextBytes,
    random_split,
    shifted,
)
from dl4all.data.image_sets import CIFAR10, MNIST, FashionMNIST, ImageFolder
from dl4all.data.loader import DataLoader
from dl4all.data.sampler import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from dl4all.data.sources import blobs, breast_cancer, digits, iris, mnist5k, spiral, wine, xor
from dl4all.data.transforms import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    center_crop,
    imagenet_eval,
    load_image,
    normalize,
    resize,
    to_array,
)
from dl4all.data.workers import WorkerInfo, get_worker_info

__all__ = [
    "CIFAR10",
    "IMAGENET_MEAN",
    "IMAGENET_STD",
    "MNIST",
    "BatchSampler",
    "ChainDataset",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "DistributedSampler",
    "FashionMNIST",
    "ImageFolder",
    "IterableDataset",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "StackDataset",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "TextBytes",
    "WeightedRandomSampler",
    "WorkerInfo",
    "blobs",
    "breast_cancer",
    "center_crop",
    "collate",
    "default_collate",
    "default_convert",
    "digits",
    "get_worker_info",
    "imagenet_eval",
    "iris",
    "load_image",
    "mnist5k",
    "normalize",
    "random_split",
    "resize",
    "shifted",
    "spiral",
    "to_array",
    "transforms",
    "wine",
    "xor",
]
