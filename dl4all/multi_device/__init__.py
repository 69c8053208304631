"""One model on several devices: data parallelism, pipelines, placement and serving.

data_parallel.py        a batch's rows on all devices of a group
├── balance.py              how many rows each device gets
├── sharded_step.py         forward and backward of one batch
├── shard.py, rendezvous.py     a thread's part of it; what the parts exchange
├── broadcast.py, buffers.py, copies.py     what replicas get, and what they give back
├── reduction.py            the sum of the gradients
└── batch_norm.py           statistics of the whole batch
pipeline.py             layers on several devices, with micro-batches between them
├── chain.py, stage.py      the layers; those of one device
├── stage_partition.py      which layers each device gets
│   ├── layer_cost.py           what each layer costs, by the trace of work
│   └── ordered_partition.py    the best cuts for devices in a given order
├── schedule.py             the order of the micro-batches
├── micro_batches.py        their way through the stages
└── shared_parameters.py    stand-ins for what several stages use
placement.py            which device gets which modules
├── work_trace.py, call_sequence.py     what each module does, found out without computing
├── units.py, stage_costs.py        what can be cut, and what its parts cost
├── partition.py            the best cuts and the best order of devices
├── schedule_times.py       when each stage works
├── placement_plan.py, placement_picture.py     the answer
└── speed_measurement.py    a device measured
inference_queue.py      single inputs, answered in batches
├── request.py, request_buckets.py      one input; which of them make up a batch
└── served_replica.py       the model on one device
replica.py              copies of a model's structure, for all of these
structure.py            tensors within tuples, lists and dicts
"""
