"""Weight files, read and written without PyTorch, and checkpoints.

save, load            serialization.py: any nested object of tensors
load_weights (the content decides)
├── weights.py        safetensors
└── torch_pickle.py   .pth/.pt: state dicts
    └── torch_container.py    the zip container and the older one
        └── torch_object.py   the pickled object as records of storages and tensors
            └── safe_pickle.py    a pickle interpreter that can call nothing
save, save_weights
└── torch_writer.py   the pickle and the zip container
"""

from __future__ import annotations

from dl4all.io.checkpoint import best_step, checkpoints, load_checkpoint, mark_best, save_checkpoint
from dl4all.io.folder_lock import lock_folder
from dl4all.io.serialization import load, save
from dl4all.io.torch_pickle import load_torch
from dl4all.io.weights import load_weights, save_weights

__all__ = [
    "best_step",
    "checkpoints",
    "load",
    "load_checkpoint",
    "load_torch",
    "load_weights",
    "lock_folder",
    "mark_best",
    "save",
    "save_checkpoint",
    "save_weights",
]
