"""GGUF: models as llama.cpp's family of programs has them, in one file.

├── reader.py          metadata and tensors of a file, which is mapped
├── row_bytes.py       rows of a tensor as bytes, and the weights that they are
├── architectures.py   configurations and names of weights by architecture
├── vocabulary.py      a tokenizer from metadata, and the reverse
└── writer.py          a model's folder as one file
"""
