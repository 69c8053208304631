"""The ONNX forms of ops, by family; importing this package declares them."""

from dl4all.onnx.exporter.op_forms import attention as attention
from dl4all.onnx.exporter.op_forms import convolution as convolution
from dl4all.onnx.exporter.op_forms import elementwise as elementwise
from dl4all.onnx.exporter.op_forms import image as image
from dl4all.onnx.exporter.op_forms import indexing as indexing
from dl4all.onnx.exporter.op_forms import linalg as linalg
from dl4all.onnx.exporter.op_forms import normalization as normalization
from dl4all.onnx.exporter.op_forms import quantization as quantization
from dl4all.onnx.exporter.op_forms import recurrent as recurrent
from dl4all.onnx.exporter.op_forms import reduction as reduction
from dl4all.onnx.exporter.op_forms import sorting as sorting
