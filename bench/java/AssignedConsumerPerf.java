import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Reads one partition from its beginning as fast as a Java consumer does, and says how fast.
 *
 * Stands in for org.apache.kafka.tools.ConsumerPerformance where a broker has no consumer groups: that tool only
 * subscribes. Settings are those of that tool (1 MiB a partition and fetch, no CRC check switched off, 2 MiB socket
 * buffer). The partition is read several times in one JVM, one line of output each, so that the first pass can be
 * the client's own warm-up. Run from source: java -cp 'libs/*' AssignedConsumerPerf.java BOOTSTRAP TOPIC RECORDS PASSES
 */
public final class AssignedConsumerPerf {
    public static void main(String[] args) {
        String bootstrap = args[0];
        TopicPartition partition = new TopicPartition(args[1], 0);
        long records = Long.parseLong(args[2]);
        int passes = Integer.parseInt(args[3]);

        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("enable.auto.commit", "false");
        properties.put("receive.buffer.bytes", String.valueOf(2 * 1024 * 1024));
        properties.put("max.partition.fetch.bytes", String.valueOf(1024 * 1024));
        properties.put("key.deserializer", ByteArrayDeserializer.class.getName());
        properties.put("value.deserializer", ByteArrayDeserializer.class.getName());

        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties)) {
            consumer.assign(List.of(partition));
            for (int pass = 0; pass < passes; pass++) {
                consumer.seek(partition, 0);
                read(consumer, records);
            }
        }
    }

    private static void read(KafkaConsumer<byte[], byte[]> consumer, long records) {
        long count = 0;
        long bytes = 0;
        long started = System.nanoTime();
        long lastRead = started;
        while (count < records) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                count++;
                bytes += record.value().length;
                lastRead = System.nanoTime();
            }
            if (System.nanoTime() - lastRead > 20_000_000_000L) {
                System.err.printf("no record for 20 s after %d of %d%n", count, records);
                System.exit(1);
            }
        }
        double seconds = (System.nanoTime() - started) / 1e9;
        System.out.printf("records=%d seconds=%.6f MB/s=%.3f records/s=%.1f%n",
            count, seconds, bytes / 1e6 / seconds, count / seconds);
    }
}
