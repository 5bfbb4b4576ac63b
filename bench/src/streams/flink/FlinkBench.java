import java.io.PrintWriter;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.time.Duration;
import java.util.Arrays;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.functions.CoGroupFunction;
import org.apache.flink.api.common.functions.FlatMapFunction;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.file.src.FileSource;
import org.apache.flink.connector.file.src.reader.TextLineInputFormat;
import org.apache.flink.core.execution.CheckpointingMode;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.SlidingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.CloseableIterator;
import org.apache.flink.util.Collector;

/**
 * The peer of our streams: the same words and the same auctions on a local mini cluster, exactly once, a checkpoint
 * every second, state on the heap. FlinkBench WORK PARALLELISM CHECKPOINTS OUT ARGUMENT...; prints the seconds of the
 * job and the processor seconds of the process, and writes the results as lines.
 */
public class FlinkBench {
    public static void main(String[] arguments) throws Exception {
        String work = arguments[0];
        int parallelism = Integer.parseInt(arguments[1]);
        Configuration configuration = new Configuration();
        configuration.setString("execution.checkpointing.dir", Paths.get(arguments[2]).toUri().toString());
        configuration.setString("execution.checkpointing.storage", "filesystem");
        configuration.setString("state.backend.type", "hashmap");
        configuration.setString("rest.bind-address", "127.0.0.1");
        configuration.setString("rest.address", "127.0.0.1");
        configuration.setString("rest.bind-port", "0");
        configuration.setString("taskmanager.numberOfTaskSlots", Integer.toString(parallelism));
        StreamExecutionEnvironment flink =
            StreamExecutionEnvironment.createLocalEnvironment(parallelism, configuration);
        flink.enableCheckpointing(1000, CheckpointingMode.EXACTLY_ONCE);
        flink.getConfig().enableObjectReuse();
        String[] rest = Arrays.copyOfRange(arguments, 4, arguments.length);
        DataStream<String> results;
        switch (work) {
            case "words":
                results = words(flink, rest);
                break;
            case "q5":
                results = hottest(flink, Long.parseLong(rest[0]), parallelism);
                break;
            case "q8":
                results = newSellers(flink, Long.parseLong(rest[0]), parallelism);
                break;
            default:
                throw new IllegalArgumentException("there is no work " + work);
        }
        long begun = System.nanoTime();
        try (CloseableIterator<String> lines = results.executeAndCollect(work);
            PrintWriter out = new PrintWriter(Files.newBufferedWriter(Path.of(arguments[3])))) {
            while (lines.hasNext()) {
                out.println(lines.next());
            }
        }
        double seconds = (System.nanoTime() - begun) / 1e9;
        com.sun.management.OperatingSystemMXBean system =
            (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        System.out.println(seconds + " " + system.getProcessCpuTime() / 1e9);
        System.out.flush();
        System.exit(0);
    }

    /** Counts the words of files. */
    static DataStream<String> words(StreamExecutionEnvironment flink, String[] paths) {
        org.apache.flink.core.fs.Path[] files = Arrays.stream(paths)
            .map(path -> new org.apache.flink.core.fs.Path(Paths.get(path).toUri()))
            .toArray(org.apache.flink.core.fs.Path[]::new);
        FileSource<String> source = FileSource.forRecordStreamFormat(new TextLineInputFormat(), files).build();
        return flink.fromSource(source, WatermarkStrategy.noWatermarks(), "lines")
            .flatMap((FlatMapFunction<String, String>) (line, out) -> {
                int from = 0;
                for (int space = line.indexOf(' '); space >= 0; space = line.indexOf(' ', from)) {
                    out.collect(line.substring(from, space));
                    from = space + 1;
                }
                out.collect(line.substring(from));
            })
            .returns(Types.STRING)
            .keyBy(word -> word)
            .process(new CountAtEnd());
    }

    /** Counts the records of a key, and gives the count when the input has ended. */
    static class CountAtEnd extends KeyedProcessFunction<String, String, String> {
        private transient ValueState<Long> count;

        @Override
        public void open(org.apache.flink.api.common.functions.OpenContext context) {
            count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Types.LONG));
        }

        @Override
        public void processElement(String word, Context context, Collector<String> out) throws Exception {
            Long before = count.value();
            if (before == null) {
                context.timerService().registerEventTimeTimer(Long.MAX_VALUE);
            }
            count.update(before == null ? 1 : before + 1);
        }

        @Override
        public void onTimer(long time, OnTimerContext context, Collector<String> out) throws Exception {
            out.collect(context.getCurrentKey() + " " + count.value());
        }
    }

    // The auction house: the same arithmetic as `nexmark.rs`.

    static final long US_PER_EVENT = 100;
    static final long DISORDER_MS = 40;
    static final long IN_FLIGHT = 100;
    static final long ACTIVE_PEOPLE = 1000;
    static final long HOT_GROUP = 100;
    static final long HOT_SIZE_MS = 10_000;
    static final long HOT_SLIDE_MS = 2_000;
    static final long NEW_SIZE_MS = 10_000;
    static final int PERSON = 0;
    static final int AUCTION = 1;
    static final int BID = 2;

    /** A person, an auction (whose other is its seller), or a bid (whose id is its auction's, and other its bidder). */
    public static class Event {
        public int kind;
        public long id;
        public long other;
        public long price;
        public long time;

        public Event() {}
    }

    static long draw(long n, long k) {
        long z = (n * 8 + k + 1) * 0x9E3779B97F4A7C15L;
        z = (z ^ (z >>> 30)) * 0xBF58476D1CE4E5B9L;
        z = (z ^ (z >>> 27)) * 0x94D049BB133111EBL;
        return (z ^ (z >>> 31)) >>> 33;
    }

    static long person(long n, long persons) {
        if (draw(n, 4) % 4 > 0) {
            return (persons - 1) / HOT_GROUP * HOT_GROUP;
        }
        return persons - 1 - draw(n, 5) % Math.min(ACTIVE_PEOPLE, persons);
    }

    static Event event(long n) {
        Event event = new Event();
        long round = n / 50;
        long slot = n % 50;
        event.time = n * US_PER_EVENT / 1000 + draw(n, 0) % DISORDER_MS;
        if (slot == 0) {
            event.kind = PERSON;
            event.id = round;
        } else if (slot <= 3) {
            event.kind = AUCTION;
            event.id = round * 3 + slot - 1;
            event.other = person(n, round + 1);
        } else {
            event.kind = BID;
            long auctions = round * 3 + 3;
            event.id = draw(n, 1) % 2 == 0
                ? (auctions - 1) / HOT_GROUP * HOT_GROUP
                : auctions - 1 - draw(n, 2) % Math.min(IN_FLIGHT, auctions);
            event.other = person(n, round + 1);
            event.price = 100 + draw(n, 3) % 10_000;
        }
        return event;
    }

    /** All events, dealt to the readers in turn: each reads a range, and takes every so-manieth event. */
    static DataStream<Event> events(StreamExecutionEnvironment flink, long count, int parallelism) {
        if (count % parallelism != 0) {
            throw new IllegalArgumentException("the events are not dealt evenly");
        }
        long share = count / parallelism;
        return flink.fromSequence(0, count - 1)
            .map(at -> event(at % share * parallelism + at / share))
            .returns(Event.class)
            .assignTimestampsAndWatermarks(
                WatermarkStrategy.<Event>forBoundedOutOfOrderness(Duration.ofMillis(DISORDER_MS))
                    .withTimestampAssigner((event, before) -> event.time));
    }

    static class Count implements AggregateFunction<Long, Long, Long> {
        public Long createAccumulator() {
            return 0L;
        }

        public Long add(Long auction, Long count) {
            return count + 1;
        }

        public Long getResult(Long count) {
            return count;
        }

        public Long merge(Long one, Long other) {
            return one + other;
        }
    }

    static class WithWindow extends ProcessWindowFunction<Long, Tuple3<Long, Long, Long>, Long, TimeWindow> {
        @Override
        public void process(Long auction, Context context, Iterable<Long> counts, Collector<Tuple3<Long, Long, Long>> out) {
            out.collect(Tuple3.of(context.window().getStart(), counts.iterator().next(), auction));
        }
    }

    static class Hottest
        implements AggregateFunction<Tuple3<Long, Long, Long>, Tuple3<Long, Long, Long>, String> {
        public Tuple3<Long, Long, Long> createAccumulator() {
            return Tuple3.of(0L, -1L, -1L);
        }

        public Tuple3<Long, Long, Long> add(Tuple3<Long, Long, Long> next, Tuple3<Long, Long, Long> best) {
            boolean is_hotter = next.f1 > best.f1 || next.f1.equals(best.f1) && next.f2 > best.f2;
            return is_hotter ? Tuple3.of(next.f0, next.f1, next.f2) : best;
        }

        public String getResult(Tuple3<Long, Long, Long> best) {
            return best.f0 + " " + best.f2 + " " + best.f1;
        }

        public Tuple3<Long, Long, Long> merge(Tuple3<Long, Long, Long> one, Tuple3<Long, Long, Long> other) {
            return add(one, other);
        }
    }

    /** Query 5: the auction with the most bids of each sliding window. */
    static DataStream<String> hottest(StreamExecutionEnvironment flink, long count, int parallelism) {
        return events(flink, count, parallelism)
            .filter(event -> event.kind == BID)
            .map(event -> event.id)
            .returns(Types.LONG)
            .keyBy(auction -> auction)
            .window(SlidingEventTimeWindows.of(Duration.ofMillis(HOT_SIZE_MS), Duration.ofMillis(HOT_SLIDE_MS)))
            .aggregate(new Count(), new WithWindow())
            .returns(Types.TUPLE(Types.LONG, Types.LONG, Types.LONG))
            .keyBy(counted -> counted.f0)
            .window(TumblingEventTimeWindows.of(Duration.ofMillis(HOT_SLIDE_MS)))
            .aggregate(new Hottest(), Types.TUPLE(Types.LONG, Types.LONG, Types.LONG), Types.STRING);
    }

    /** Says once that a person is new and sells in the same window. */
    static class NewSeller implements CoGroupFunction<Tuple2<Long, Long>, Tuple2<Long, Long>, String> {
        @Override
        public void coGroup(
            Iterable<Tuple2<Long, Long>> persons, Iterable<Tuple2<Long, Long>> auctions, Collector<String> out) {
            if (auctions.iterator().hasNext()) {
                for (Tuple2<Long, Long> person : persons) {
                    out.collect(person.f0 + " " + Math.floorDiv(person.f1, NEW_SIZE_MS) * NEW_SIZE_MS);
                }
            }
        }
    }

    static DataStream<Tuple2<Long, Long>> ofKind(DataStream<Event> events, int kind) {
        return events.filter(event -> event.kind == kind)
            .map(event -> Tuple2.of(kind == PERSON ? event.id : event.other, event.time))
            .returns(Types.TUPLE(Types.LONG, Types.LONG));
    }

    /** Query 8: persons who are new and sell in the same window. */
    static DataStream<String> newSellers(StreamExecutionEnvironment flink, long count, int parallelism) {
        DataStream<Event> events = events(flink, count, parallelism);
        return ofKind(events, PERSON)
            .coGroup(ofKind(events, AUCTION))
            .where(person -> person.f0, Types.LONG)
            .equalTo(auction -> auction.f0, Types.LONG)
            .window(TumblingEventTimeWindows.of(Duration.ofMillis(NEW_SIZE_MS)))
            .apply(new NewSeller(), Types.STRING);
    }
}
