"""Networks: MLP, LeNet, VGG, ResNet, MobileNet V2, an LSTM tagger and GPT."""

from __future__ import annotations

from dl4all.models.gpt import GPT
from dl4all.models.lenet import LeNet
from dl4all.models.mlp import MLP
from dl4all.models.mobilenet import MobileNetV2, mobilenet_v2
from dl4all.models.pretrained import resnet18_digits
from dl4all.models.resnet import ResNet, resnet18, resnet34, resnet50
from dl4all.models.tagger import LSTMTagger
from dl4all.models.vgg import VGG, vgg11, vgg11_bn, vgg13, vgg13_bn, vgg16, vgg16_bn

__all__ = [
    "GPT",
    "MLP",
    "VGG",
    "LSTMTagger",
    "LeNet",
    "MobileNetV2",
    "ResNet",
    "mobilenet_v2",
    "resnet18",
    "resnet18_digits",
    "resnet34",
    "resnet50",
    "vgg11",
    "vgg11_bn",
    "vgg13",
    "vgg13_bn",
    "vgg16",
    "vgg16_bn",
]
