"""ONNX: operators as models of one or a few nodes, for ONNX Runtime, OpenVINO and TVM."""
