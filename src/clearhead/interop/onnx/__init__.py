"""ONNX files of our models, node by node: out, proved with onnxruntime, and back."""
