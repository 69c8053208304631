"""One model on several devices: data parallelism, pipelines, placement and serving."""
