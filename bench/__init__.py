"""Side-by-side benchmarks: Moldau and Apache Kafka, the same loads in the same run on the same machine."""
