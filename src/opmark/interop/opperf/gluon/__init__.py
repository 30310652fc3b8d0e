"""mxnet_benchmarks.gluon"""
