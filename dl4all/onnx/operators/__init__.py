"""The operators by family; importing this module declares them."""

from dl4all.onnx.operators import attention as attention
from dl4all.onnx.operators import control_flow as control_flow
from dl4all.onnx.operators import convolution as convolution
from dl4all.onnx.operators import creation as creation
from dl4all.onnx.operators import elementwise as elementwise
from dl4all.onnx.operators import image as image
from dl4all.onnx.operators import indexing as indexing
from dl4all.onnx.operators import linalg as linalg
from dl4all.onnx.operators import linear_models as linear_models
from dl4all.onnx.operators import normalization as normalization
from dl4all.onnx.operators import pooling as pooling
from dl4all.onnx.operators import quantization as quantization
from dl4all.onnx.operators import recurrent as recurrent
from dl4all.onnx.operators import reduction as reduction
from dl4all.onnx.operators import sequences as sequences
from dl4all.onnx.operators import shape as shape
from dl4all.onnx.operators import signal as signal
