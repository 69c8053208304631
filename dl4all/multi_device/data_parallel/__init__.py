"""One model on several devices that share each batch: replicas, shards of rows, and the sum of gradients."""
