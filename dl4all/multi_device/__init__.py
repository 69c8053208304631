"""One model on several devices: data parallelism, pipelines, placement and serving.

data_parallel/          a batch's rows on all devices of a group
├── module.py               the model, and one call of it
├── balance.py, step_plan.py    how many rows each device gets; what is kept from call to call
├── sharded_step.py         forward and backward of one batch
├── shard.py, rendezvous.py     a thread's part of it; what the parts exchange
├── broadcast.py, buffers.py, copies.py     what replicas get, and what they give back
├── reduction.py            the sum of the gradients
├── distributed.py, peers.py    the same with the devices of other processes
└── batch_norm.py           statistics of the whole batch
pipeline/               layers on several devices, with micro-batches between them
├── module.py               the model, and one call of it
├── chain.py, stage.py      the layers; those of one device
├── stage_partition.py      which layers each device gets
│   ├── layer_cost.py           what each layer costs, by the trace of work
│   └── ordered_partition.py    the best cuts for devices in a given order
├── micro_batches.py        their way through the stages
└── shared_parameters.py    stand-ins for what several stages use
placement/              which device gets which modules
├── placement.py            from a model to the answer
├── units.py, stage_costs.py    what can be cut, and what its parts cost
├── partition.py            the best cuts and the best order of devices
├── schedule_times.py       when each stage works
└── plan.py, picture.py     the answer
serving/                single inputs, answered in batches
├── inference_queue.py      the queue and its threads
├── request.py, request_buckets.py      one input; which of them make up a batch
└── served_replica.py       the model on one device
trace/                  what a model does and how fast a device is
├── work_trace.py, call_sequence.py     what each module does, found out without computing
└── speed_measurement.py    a device measured
schedule.py             the order of the micro-batches, for pipelines and for placement
group_module.py         a module whose parameters lie on the devices of a group
replica.py              copies of a model's structure, for all of these
structure.py            tensors within tuples, lists and dicts
"""
