"""Who of a group is to have which partitions: plain values in, plain values out."""
