"""Export of models to ONNX files, comparison with onnxruntime, and re-import."""
