import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Transactions as fast as Java clients do them, and how fast that is.
 *
 * Several clients at once, one a thread, each with a transactional id of its own. What a transaction is, is said by
 * the first argument: "produce" writes records round the partitions of the target; "transform" reads them from one
 * partition of the source, which is filled first, writes each to the target, and commits the offset. The first
 * transactions of each client are its warm-up. Run from source:
 * java -cp 'libs/*' TransactionPerf.java KIND BOOTSTRAP SOURCE TARGET PARTITIONS CLIENTS TRANSACTIONS WARM-UP RECORDS
 */
public final class TransactionPerf {
    private static final byte[] VALUE = new byte[100];

    private final String bootstrap;
    private final String source;
    private final String target;
    private final int partitions;
    private final int transactions;
    private final int warmUp;
    private final int records;
    private final AtomicLong started = new AtomicLong();

    private TransactionPerf(String[] args) {
        bootstrap = args[1];
        source = args[2];
        target = args[3];
        partitions = Integer.parseInt(args[4]);
        transactions = Integer.parseInt(args[6]);
        warmUp = Integer.parseInt(args[7]);
        records = Integer.parseInt(args[8]);
    }

    public static void main(String[] args) throws Exception {
        TransactionPerf perf = new TransactionPerf(args);
        int clients = Integer.parseInt(args[5]);
        boolean transforms = args[0].equals("transform");
        CyclicBarrier warm = new CyclicBarrier(clients, () -> perf.started.set(System.nanoTime()));
        if (transforms) {
            perf.fill();
        }
        ExecutorService threads = Executors.newFixedThreadPool(clients);
        List<Future<?>> running = new ArrayList<>();
        for (int number = 0; number < clients; number++) {
            int client = number;
            running.add(threads.submit(() -> {
                try {
                    if (transforms) {
                        perf.transform(client, warm);
                    } else {
                        perf.produce(client, warm);
                    }
                } catch (Exception failure) {
                    // The others would wait for this one.
                    failure.printStackTrace();
                    System.exit(1);
                }
                return null;
            }));
        }
        for (Future<?> each : running) {
            each.get();
        }
        double seconds = (System.nanoTime() - perf.started.get()) / 1e9;
        threads.shutdown();
        long done = (long) clients * perf.transactions;
        System.out.printf("transactions=%d seconds=%.6f transactions/s=%.3f%n", done, seconds, done / seconds);
    }

    /** As many records in each partition of the source as a client takes. */
    private void fill() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("key.serializer", ByteArraySerializer.class.getName());
        properties.put("value.serializer", ByteArraySerializer.class.getName());
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties)) {
            for (int record = 0; record < partitions * (warmUp + transactions) * records; record++) {
                producer.send(new ProducerRecord<>(source, record % partitions, null, VALUE));
            }
        }
    }

    private void produce(int client, CyclicBarrier warm) throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer(client)) {
            for (int count = -warmUp; count < transactions; count++) {
                if (count == 0) {
                    warm.await();
                }
                producer.beginTransaction();
                for (int record = 0; record < records; record++) {
                    producer.send(new ProducerRecord<>(target, record % partitions, null, VALUE));
                }
                producer.commitTransaction();
            }
        }
    }

    private void transform(int client, CyclicBarrier warm) throws Exception {
        TopicPartition place = new TopicPartition(source, client % partitions);
        try (KafkaProducer<byte[], byte[]> producer = producer(client);
                KafkaConsumer<byte[], byte[]> consumer = consumer(client)) {
            consumer.assign(List.of(place));
            consumer.seek(place, 0);
            for (int count = -warmUp; count < transactions; count++) {
                if (count == 0) {
                    warm.await();
                }
                ConsumerRecords<byte[], byte[]> polled = consumer.poll(Duration.ofSeconds(20));
                if (polled.isEmpty()) {
                    throw new IllegalStateException("no record for 20 s in " + place);
                }
                producer.beginTransaction();
                int taken = 0;
                long next = 0;
                for (ConsumerRecord<byte[], byte[]> record : polled) {
                    producer.send(new ProducerRecord<>(target, taken++ % partitions, null, record.value()));
                    next = record.offset() + 1;
                }
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                offsets.put(place, new OffsetAndMetadata(next));
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                producer.commitTransaction();
            }
        }
    }

    private KafkaProducer<byte[], byte[]> producer(int client) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("transactional.id", target + "-" + client);
        properties.put("key.serializer", ByteArraySerializer.class.getName());
        properties.put("value.serializer", ByteArraySerializer.class.getName());
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties);
        producer.initTransactions();
        return producer;
    }

    private KafkaConsumer<byte[], byte[]> consumer(int client) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("group.id", target + "-" + client);
        properties.put("enable.auto.commit", "false");
        properties.put("isolation.level", "read_committed");
        properties.put("max.poll.records", String.valueOf(records));
        properties.put("key.deserializer", ByteArrayDeserializer.class.getName());
        properties.put("value.deserializer", ByteArrayDeserializer.class.getName());
        return new KafkaConsumer<>(properties);
    }
}
