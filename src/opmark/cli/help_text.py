"""Texts of `opmark` and of `--help`: first steps, panels, and examples, each of which a test parses."""

from __future__ import annotations

SUMMARY = "Benchmarks for deep-learning operators: one workload, any framework, any device, true numbers."
FIRST_STEPS = """\
opmark measures deep-learning operators on any framework and device. Try first:

  opmark run matmul --effort quick         # how fast is it here? prints a table
  opmark run --suite quick --effort quick  # 26 common cases in half a minute
  opmark doctor                            # is this machine fit to measure on?
  opmark list ops                          # what can be measured
  opmark report                            # the last run as one HTML file

`opmark --help` lists all commands, `opmark run --help` options and examples."""
"""What `opmark` alone prints."""
COMPLETE_VARIABLE = "_OPMARK_COMPLETE"
"""Set in the environment by a shell that asks for completions."""
COMMON = "Common options"
REST = "Output"
"""Titles of the first and the last panel of options."""

EXAMPLES = {
    "run": (
        "opmark run matmul --effort quick",
        "opmark run matmul -p M=256 -p N=256 -p K=64,128 -p dtype=float32,bfloat16",
        "opmark run exp softmax --size small,typical --phase forward,backward",
        "opmark run --suite llm --tag decode --backend torch-cuda",
        "opmark run matmul softmax --backend all",
        "opmark run torch.baddbmm --args '[8x64x64 float32, 8x64x32 float32, 8x32x64 float32]'",
        "opmark run -w my.yaml --dry-run",
    ),
    "list": (
        "opmark list ops --category activation",
        "opmark list models",
        "opmark list backends",
        "opmark list suites",
    ),
    "describe": ("opmark describe conv2d", "opmark describe device_time", "opmark describe H200"),
    "coverage": ("opmark coverage", "opmark coverage torch"),
    "judge": (
        "opmark judge mykernels.py:softmax --like softmax -p shape=4096x4096",
        "opmark judge mykernels.py:softmax --like softmax --backend torch-cuda",
    ),
    "capture": (
        "opmark capture -o step.json train.py --epochs 1",
        "opmark capture --top model.py:step",
        "opmark capture --skip 10 --steps 1 --stop -m package.train",
    ),
    "extract": (
        "opmark extract model:bert-base -p batch=1 -o ops.yaml",
        "opmark extract model:resnet50 --graph onnxruntime-cpu",
    ),
    "space": (
        "opmark space matmul -p M=512 -p N=512 -p K=512 --backend tvm-cpu",
        "opmark space softmax --backend triton-cuda -o space.json",
    ),
    "corun": (
        "opmark corun matmul softmax",
        "opmark corun matmul matmul -p M=512 -p 2.M=64 --cores shared",
        "opmark corun -w ops.yaml --group",
        "opmark corun matmul layer_norm --tune --budget 5m",
    ),
    "tune": (
        "opmark tune matmul -p M=512 -p N=512 -p K=512 --backend tvm-cpu --budget 5m",
        "opmark tune -w ops.yaml --backend triton-cuda --trials 200",
        "opmark tune model:resnet-18 --backend tvm-cpu --tuner xgb",
    ),
    "factors": (
        "opmark factors matmul -p M=1024 -p N=1024 -p K=1024 --factor threads --factor size --factor dtype",
        "opmark factors --list conv2d --backend tvm-cpu",
        "opmark factors --run LABEL --json",
    ),
    "tuned": (
        "opmark tuned matmul --near M=1000",
        "opmark run matmul --backend tvm-cpu/tuned",
        "opmark tuned export -o tuned.json",
    ),
    "schedule": (
        "opmark schedule model:inception_v3 --on cpu",
        "opmark schedule model:two-towers --on cpu:1,cpu:1 --no-run",
        "opmark schedule model:dlrm --no-run --times cpu.yaml",
        "opmark schedule cpu.yaml npu.yaml --on cpu,npu",
    ),
    "predict": (
        "opmark predict matmul -p M=4096 -p N=4096 -p K=4096 --on A100",
        "opmark predict model:resnet-18 --on T4",
        "opmark predict train --measure --budget 10m --backend torch-cpu",
        "opmark predict probe --on L4 --from probes.csv",
    ),
    "replay": (
        "opmark replay step.json --backend torch-cpu",
        "opmark replay step.json --subgraph backward --trace-out both.json",
        "opmark replay captures/ --ranks 2 --scale 32=64",
    ),
    "evaluate": (
        "opmark evaluate model:resnet50 --data imagenet:/data/imagenet/val --data-percent 10",
        "opmark evaluate model:bert-base --data squad:dev-v1.1.json --data-option vocab=vocab.txt "
        "--backend torch-cpu,onnxruntime-cpu -p dtype=float32,bfloat16",
    ),
    "ledger": ("opmark ledger model:bert-base -p batch=1 --backend torch-cpu", "opmark ledger"),
    "compare": ("opmark compare before after", "opmark compare torch-cpu numpy-cpu --run nightly"),
    "ab": (
        "opmark ab matmul --backend torch-cpu,numpy-cpu",
        "opmark ab mymodule:layer --args '[64x256 float32]' --rev HEAD~1",
        "opmark ab matmul --threads 1,2",
    ),
    "check": (
        "opmark check --suite quick --baseline main",
        "opmark check --suite quick --baseline main --junit opmark.xml --markdown summary.md",
    ),
    "bisect": (
        "opmark bisect mymodule:layer --args '[64x256 float32]' --good v1.0",
        "opmark bisect softmax --package torch --good 2.11.0 --bad 2.13.0",
    ),
    "nightly": ("opmark nightly --template", "opmark nightly nightly.yaml --dry-run", "opmark nightly nightly.yaml"),
    "rank": ("opmark rank", "opmark rank nightly --by dtype"),
    "history": ("opmark history 'conv*' --since 90d", "opmark history matmul --label nightly"),
    "show": ("opmark show", "opmark show before --wide", "opmark show before -f csv -o before.csv"),
    "runs": ("opmark runs", "opmark runs label 20260101-120000-abcd before"),
    "model": (
        "opmark run model:gpt2 --size small --backend all --compile-only",
        "opmark model matrix",
        "opmark model diff model:gpt2 --size small",
        "opmark model export model:resnet50 --to mlir -o resnet50.mlir",
    ),
    "report": ("opmark report", "opmark report before after -o report.html"),
    "serve": ("opmark serve", "opmark serve --port 0"),
    "query": ("opmark query --views", "opmark query 'select op, count(*) from records group by op'"),
    "fit": ("opmark run all_reduce --ranks 2 -p size=8,1K,128K,16M", "opmark fit"),
    "merge": ("opmark merge other.db",),
    "push": ("opmark push https://bench.example.org before",),
    "prune": ("opmark prune --before 90d --keep-last 10",),
    "doctor": ("opmark doctor", "opmark doctor --aa"),
    "calibrate": ("opmark calibrate", "opmark calibrate --backend torch-cuda"),
    "fleet": (
        "opmark fleet --address head:6379",
        "opmark run --suite llm --executor ray --address auto",
        "opmark fleet agree --backend torch-cpu",
        "opmark fleet drain node-7",
    ),
    "env": ("opmark env create tensorflow", "opmark env list"),
    "import": ("opmark import simple_mm_range.json -o mine.yaml",),
    "export": ("opmark export before -f csv -o before.csv",),
}
