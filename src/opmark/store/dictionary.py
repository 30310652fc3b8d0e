"""What records have in common, for packing them: a record refers to it instead of repeating it.

Stored bodies cannot be read without it, so it is never changed; a better one would be added beside it (`pack._PACKED`).
"""

DICTIONARY = b"".join(
    line.encode()
    for line in (
        '"profiles":[{"tool":"ncu","metrics":{"compilation":{"cold":0.,"warm":0.,"cache":"',
        '"reason":"out of memory","status":"oom","status":"timeout","status":"error","status":"wrong","status":',
        '"skipped"',
        " has no implementation for its process ended with exit code 1 while running the task; it said: ",
        '"tags":["small","typical","large"],"wrt":["input","weight"],"sources":["',
        '{"code":"imprecise","message":"the interval of the median is ± ',
        '{"code":"loaded","message":"{"code":"drifting","message":"{"code":"clocks-moved","message":"',
        '{"code":"preempted","message":"{"code":"unsettled","message":"{"code":"stolen","message":"',
        '"kernels":[{"name":"void at::native::vectorized_elementwise_kernel<4, at::native::',
        '"readings":[{"at":0,"clock":1980000000.0,"power":,"temperature":,"throttle":[]},{"at":',
        '{"quantity":"device_time","cache":"cold","timer":"cupti","samples":100,"calls":1,"overhead":0.0,',
        '"control":"flush","check":{"timer":"events","median":',
        '{"quantity":"host_time","cache":"warm","timer":"monotonic",',
        '"params":{"M":1024,"N":1024,"K":1024,"dtype":"bfloat16","dtype":"float16",',
        '{"task":{"case":{"id":"","op":"matmul","params":{"shape":[1024,1024],"dtype":"float32"},"phase":"backward",',
        '"phase":"forward","tags":[],"wrt":[],"sources":[]},"backend":"numpy-cpu","implementation":"numpy",',
        '"backend":"torch-cuda","backend":"torch-cpu","implementation":"torch","settings":{"threads":2,"effort":"standard",',
        '"effort":"thorough","sampling":{"warmup_min":0.2,"warmup_max":5.0,"effort":"quick",',
        '"sampling":{"warmup_min":0.005,"warmup_max":0.1,"warmup_agreement":0.03,"sample_time":0.0001,"min_samples":20,',
        '"min_time":0.015,"max_time":0.2,"rel_ci":0.02,"warmup":null,"samples":null},"seed":0,"verify":true,',
        '"quantities":[],"caches":[],"mode":"","timer":"","process":0}},"status":"ok","reason":"",',
        '"measurements":[{"quantity":"latency","cache":"warm","timer":"monotonic","samples":50,"calls":23,"overhead":',
        '4.1e-8,"warmup_calls":1006,"warmup_time":0.006,"stop":"budget","stop":"count","stop":"precise",',
        '"cautions":[{"code":"outliers","message":"3 of 50 samples took longer than 9.11 µs, the median is 5.65 µs",',
        '"hint":"something interrupts this machine regularly; the median stands, a mean would not"}],"cautions":[],',
        '"control":"","conditions":{"readings":[],"highest_clock":null,"elapsed":0.0163,"switches":4,"load":0.09,',
        '"others":0.0,"steal":0.0},"kernels":[],"check":null,"by_rank":[],"warmup_samples":[]}],"cost":{"flops":0,',
        '"bytes_read":262144,"bytes_written":262144},"memory":{"peak":528384,"baseline":246812672,',
        '"source":"resident pages","resolution":4096},"verification":{"checked":"full","note":"","params":null,',
        '"max_abs_error":0.0,"max_rel_error":0.0,"tolerance":[0.00001,0.00001],"reference":"","after":"same",',
        '"numerics":[{"elements":65536,"compared":65536,"nan":0,"inf":0,"nan_expected":0,"inf_expected":0,',
        '"max_abs":0.0,"mean_abs":0.0,"max_rel":0.0,"mean_rel":0.0,"cosine":1.0,"max_ulp":0.0,"mean_ulp":0.0}]},',
        '"environment":"","started":"2026-11-15T21:27:51.997+00:00","called":"","view":false,"notes":[],"duration":0.1,',
        '"profiles":[],"compilation":null,"untried":false,"overlap":null}',
    )
)
