"""ONNX: an operator as a model of one node, or of a few. ONNX Runtime, OpenVINO and TVM all take it."""
