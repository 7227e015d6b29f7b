import java.io.DataInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.Semaphore;

/** What the peers share: known contents, echoes with blocking sockets, and many of them at a time. */
final class Peers {
    static final InetAddress HOST = InetAddress.getLoopbackAddress();
    private static final int BUFFER_BYTES = 65_536;
    private static final int ROUND_TRIPS = 30;

    /** Threads of the kind that the test asks for. All are daemons: none keeps a JVM up, be it idle or stuck. */
    static final ExecutorService THREADS = threads();

    private Peers() {}

    interface Work {
        long run(int number) throws Exception;
    }

    interface Action {
        void run() throws Exception;
    }

    private static ExecutorService threads() {
        if (!"virtual".equals(System.getenv("THREADS"))) {
            return Executors.newCachedThreadPool(work -> {
                Thread thread = new Thread(work);
                thread.setDaemon(true);
                return thread;
            });
        }
        try {
            // By name, as the compiler may be older than the Java that runs this.
            return (ExecutorService) Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException("this Java has no virtual threads: " + Runtime.version(), error);
        }
    }

    static InetSocketAddress address(int port) {
        return new InetSocketAddress(HOST, port);
    }

    /** Pseudo-random bytes, the same for the same seed. */
    static byte[] content(int seed, int size) {
        byte[] bytes = new byte[size];
        new Random(seed).nextBytes(bytes);
        return bytes;
    }

    static void check(boolean good, String what) {
        if (!good) {
            throw new IllegalStateException(what);
        }
    }

    static void compare(byte[] got, byte[] wanted, String what) {
        int at = Arrays.mismatch(got, wanted);
        check(at < 0, what + ": wrong from byte " + at + " on (" + got.length + " of " + wanted.length + " bytes)");
    }

    /** In a thread of its own; an exception ends the program. */
    static void background(Action action) {
        THREADS.execute(() -> {
            try {
                action.run();
            } catch (Throwable error) {
                error.printStackTrace();
                System.exit(1);
            }
        });
    }

    /** Runs the work for all numbers below `count`, so many at a time; the sum of what it returns. */
    static long each(int count, int width, Work work) throws Exception {
        Semaphore room = new Semaphore(width);
        List<Future<Long>> results = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            int number = i;
            room.acquire();
            results.add(THREADS.submit((Callable<Long>) () -> {
                try {
                    return work.run(number);
                } finally {
                    room.release();
                }
            }));
        }
        long sum = 0;
        for (Future<Long> result : results) {
            sum += result.get();
        }
        return sum;
    }

    interface Service {
        void serve(Socket connection) throws Exception;
    }

    static ServerSocket listen() throws IOException {
        return new ServerSocket(0, 512, HOST);
    }

    /** A thread for each connection, which is closed when the service returns. Does not come back. */
    static void serve(ServerSocket listener, Service service) throws IOException {
        System.out.println("listening on " + listener.getLocalPort());
        while (true) {
            Socket connection = listener.accept();
            background(() -> {
                try (connection) {
                    connection.setTcpNoDelay(true);
                    service.serve(connection);
                }
            });
        }
    }

    static void echo(Socket connection) throws IOException {
        byte[] buffer = new byte[BUFFER_BYTES];
        InputStream in = connection.getInputStream();
        OutputStream out = connection.getOutputStream();
        for (int n; (n = in.read(buffer)) >= 0; ) {
            out.write(buffer, 0, n);
        }
        connection.shutdownOutput();
    }

    static Socket connect(int port) throws IOException {
        Socket connection = new Socket(HOST, port);
        connection.setTcpNoDelay(true);
        return connection;
    }

    static byte[] exactly(InputStream in, int size) throws IOException {
        byte[] bytes = new byte[size];
        new DataInputStream(in).readFully(bytes);
        return bytes;
    }

    /** Messages that each wait for their echo: enough for an upgrade. */
    static long roundTrips(Socket connection, int seed) throws IOException {
        long bytes = 0;
        for (int trip = 0; trip < ROUND_TRIPS; trip++) {
            byte[] message = content(seed * 1000 + trip, 1 + (seed * 37 + trip * 101) % 3000);
            connection.getOutputStream().write(message);
            compare(exactly(connection.getInputStream(), message.length), message, "round trip " + trip);
            bytes += message.length;
        }
        return bytes;
    }

    /** Writes in pieces of all sizes. */
    static void send(OutputStream out, byte[] data) throws IOException {
        for (int at = 0, size = 1; at < data.length; at += size, size = 1 + size * 7 % 50_021) {
            out.write(data, at, Math.min(size, data.length - at));
        }
    }

    /** A stream in one direction while its echo comes back in the other. */
    static long stream(Socket connection, int seed, int size) throws Exception {
        byte[] data = content(seed, size);
        Future<?> sender = THREADS.submit((Callable<Void>) () -> {
            send(connection.getOutputStream(), data);
            return null;
        });
        compare(exactly(connection.getInputStream(), size), data, "stream " + seed);
        sender.get();
        return size;
    }

    static void expectEnd(Socket connection) throws IOException {
        check(connection.getInputStream().read() < 0, "bytes where the stream should end");
    }

    static void result(long connections, long bytes) {
        System.out.println("{\"connections\": " + connections + ", \"bytes\": " + bytes + "}");
    }
}
