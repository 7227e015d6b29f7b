import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.AsynchronousCloseException;
import java.nio.channels.AsynchronousServerSocketChannel;
import java.nio.channels.AsynchronousSocketChannel;
import java.nio.channels.CompletionHandler;
import java.nio.channels.InterruptedByTimeoutException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/** AsynchronousSocketChannel: completion handlers, futures, gathering writes, timeouts, close under a pending read. */
public final class AsyncChannels {
    private static final int CONNECTIONS = 30;
    private static final int ROUND_TRIPS = 30;
    private static final int BYTES = 300_000;
    private static final int BUFFER_BYTES = 16_384;
    private static final int SHORT_MS = 150;

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("server")) {
            serve();
        }
        int port = Integer.parseInt(arguments[1]);
        Peers.result(CONNECTIONS, Peers.each(CONNECTIONS, CONNECTIONS, seed -> talk(port, seed)));
    }

    /** A handler of which only the good outcome is written down: the other one ends the program. */
    private interface Done<V> extends CompletionHandler<V, Void> {
        @Override
        default void failed(Throwable error, Void nothing) {
            error.printStackTrace();
            System.exit(1);
        }
    }

    private static void serve() throws Exception {
        AsynchronousServerSocketChannel listener =
            AsynchronousServerSocketChannel.open().bind(Peers.address(0), 128);
        listener.accept(null, new Done<AsynchronousSocketChannel>() {
            @Override
            public void completed(AsynchronousSocketChannel connection, Void nothing) {
                listener.accept(null, this);
                new Echo(connection).read();
            }
        });
        System.out.println("listening on " + ((java.net.InetSocketAddress) listener.getLocalAddress()).getPort());
        Thread.currentThread().join(); // for ever
    }

    private static final class Echo {
        private final AsynchronousSocketChannel connection;
        private final ByteBuffer buffer = ByteBuffer.allocateDirect(BUFFER_BYTES);

        Echo(AsynchronousSocketChannel connection) {
            this.connection = connection;
        }

        void read() {
            buffer.clear();
            connection.read(buffer, null, (Done<Integer>) this::write);
        }

        private void write(int n, Void nothing) {
            if (n < 0) {
                close();
            } else {
                buffer.flip();
                writeRest();
            }
        }

        private void writeRest() {
            connection.write(buffer, null, (Done<Integer>) (n, nothing) -> {
                if (buffer.hasRemaining()) {
                    writeRest();
                } else {
                    read();
                }
            });
        }

        private void close() {
            try {
                connection.close();
            } catch (IOException error) {
                throw new IllegalStateException(error);
            }
        }
    }

    private static byte[] exactly(AsynchronousSocketChannel connection, int size) throws Exception {
        ByteBuffer buffer = ByteBuffer.allocate(size);
        while (buffer.hasRemaining()) {
            Peers.check(connection.read(buffer).get() >= 0, "the stream ended early");
        }
        return buffer.array();
    }

    private static long talk(int port, int seed) throws Exception {
        try (AsynchronousSocketChannel connection = AsynchronousSocketChannel.open()) {
            connection.connect(Peers.address(port)).get();
            long bytes = 0;
            for (int trip = 0; trip < ROUND_TRIPS; trip++) {
                byte[] message = Peers.content(seed * 1000 + trip, 1 + (seed * 37 + trip * 101) % 3000);
                gather(connection, message);
                Peers.compare(exactly(connection, message.length), message, "round trip " + trip);
                bytes += message.length;
            }
            byte[] data = Peers.content(seed, BYTES);
            CompletableFuture<Long> sent = sendAll(connection, data);
            Peers.compare(exactly(connection, BYTES), data, "stream");
            Peers.check(sent.get() == BYTES, "not all was sent");
            end(connection, seed % 3);
            return bytes + BYTES;
        }
    }

    /** One message in three buffers. */
    private static void gather(AsynchronousSocketChannel connection, byte[] message) throws Exception {
        int third = message.length / 3;
        ByteBuffer[] parts = {ByteBuffer.wrap(message, 0, third), ByteBuffer.wrap(message, third, third),
                              ByteBuffer.wrap(message, 2 * third, message.length - 2 * third)};
        while (parts[2].hasRemaining()) {
            CompletableFuture<Long> written = new CompletableFuture<>();
            connection.write(parts, 0, parts.length, 10, TimeUnit.SECONDS, null,
                             (Done<Long>) (n, nothing) -> written.complete(n));
            written.get();
        }
    }

    private static CompletableFuture<Long> sendAll(AsynchronousSocketChannel connection, byte[] data) {
        CompletableFuture<Long> sent = new CompletableFuture<>();
        ByteBuffer buffer = ByteBuffer.wrap(data);
        connection.write(buffer, null, new Done<Integer>() {
            @Override
            public void completed(Integer n, Void nothing) {
                if (buffer.hasRemaining()) {
                    connection.write(buffer, null, this);
                } else {
                    sent.complete((long) buffer.position());
                }
            }
        });
        return sent;
    }

    /** The end of a read that finds nothing: by half-close, by its timeout, by close(). */
    private static void end(AsynchronousSocketChannel connection, int way) throws Exception {
        if (way == 0) {
            connection.shutdownOutput();
            Peers.check(connection.read(ByteBuffer.allocate(1)).get() < 0, "a byte after the end");
        } else if (way == 1) {
            CompletableFuture<Throwable> met = new CompletableFuture<>();
            connection.read(ByteBuffer.allocate(1), SHORT_MS, TimeUnit.MILLISECONDS, null,
                            new CompletionHandler<Integer, Void>() {
                @Override
                public void completed(Integer n, Void nothing) {
                    met.completeExceptionally(new IllegalStateException("no timeout but " + n + " bytes"));
                }

                @Override
                public void failed(Throwable error, Void nothing) {
                    met.complete(error);
                }
            });
            Peers.check(met.get() instanceof InterruptedByTimeoutException, "no timeout but " + met.get());
        } else {
            Future<Integer> read = connection.read(ByteBuffer.allocate(1));
            connection.close();
            try {
                throw new IllegalStateException("a closed channel gave " + read.get());
            } catch (ExecutionException error) {
                Peers.check(error.getCause() instanceof AsynchronousCloseException, "at close: " + error);
            }
        }
    }
}
