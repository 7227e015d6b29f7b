import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketException;
import java.nio.ByteBuffer;
import java.nio.channels.AsynchronousCloseException;
import java.nio.channels.ClosedByInterruptException;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.SocketChannel;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/**
 * A thread is blocked in read(), write() or accept(), and another one closes the socket or interrupts the thread: the
 * call ends at once with the right exception, and the peer sees the end of the stream.
 */
public final class CloseBlocked {
    private static final int CONNECTIONS = 4;
    private static final int LARGE = 16_000_000;
    private static final int LONG_SECONDS = 10;
    private static final int MAKES_IT_BLOCK_MS = 20;

    /** What the server knows of the connections whose clients have told their number. */
    private static final class Talk {
        final CountDownLatch closed = new CountDownLatch(1);
        final CountDownLatch ended = new CountDownLatch(1);
        volatile Socket connection;
        volatile int arrived;
    }

    private static final Map<Integer, Talk> TALKS = new ConcurrentHashMap<>();

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("server")) {
            Peers.serve(Peers.listen(), CloseBlocked::serve);
        }
        int port = Integer.parseInt(arguments[1]);
        acceptBlocked();
        Way[] ways = Way.values();
        int count = CONNECTIONS * ways.length;
        long bytes = Peers.each(count, CONNECTIONS, number -> ways[number % ways.length].run(port, number));
        Peers.result(count, bytes);
    }

    /** A number of 0 or more begins a talk; another one asks whether bytes have arrived in a talk, or how it ended. */
    private static void serve(Socket connection) throws Exception {
        DataInputStream in = new DataInputStream(connection.getInputStream());
        int number = in.readInt();
        Talk talk = TALKS.computeIfAbsent(number < 0 ? -1 - number : number, n -> new Talk());
        if (number >= 0) {
            serve(connection, in, number, talk);
            return;
        }
        if (in.readBoolean()) {
            awaitBytes(talk);
            connection.getOutputStream().write(1);
            return;
        }
        talk.closed.countDown();
        Peers.check(talk.ended.await(LONG_SECONDS, TimeUnit.SECONDS), "no end of connection " + number);
        new DataOutputStream(connection.getOutputStream()).writeInt(talk.arrived);
    }

    private static void awaitBytes(Talk talk) throws Exception {
        while (talk.connection.getInputStream().available() == 0) {
            Thread.sleep(1);
        }
    }

    private static void serve(Socket connection, DataInputStream in, int number, Talk talk) throws Exception {
        talk.connection = connection;
        for (int size; (size = in.readInt()) > 0; ) {
            connection.getOutputStream().write(Peers.exactly(in, size));
        }
        talk.closed.await(); // nothing is read before that, so that a write of the client blocks
        byte[] rest = in.readAllBytes();
        Peers.compare(rest, Peers.content(number, rest.length), "the start of a large write");
        talk.arrived = rest.length;
        talk.ended.countDown();
    }

    private enum Way {
        READ, TIMED_READ, CHANNEL_READ, INTERRUPTED_READ, WRITE, CHANNEL_WRITE;

        boolean writes() {
            return this == WRITE || this == CHANNEL_WRITE;
        }

        long run(int port, int number) throws Exception {
            boolean plain = this == READ || this == TIMED_READ || this == WRITE;
            SocketChannel channel = plain ? null : SocketChannel.open(Peers.address(port));
            Socket connection = plain ? Peers.connect(port) : channel.socket();
            connection.setTcpNoDelay(true);
            long bytes = CloseBlocked.echoes(connection, number);
            block(connection, channel, port, number);
            Peers.check(connection.isClosed(), "not closed");
            int arrived = CloseBlocked.ended(port, number);
            Peers.check(writes() || arrived == 0, arrived + " bytes from nowhere");
            Peers.check(!writes() || arrived > 0 && arrived < LARGE, arrived + " bytes of a write that was cut");
            return bytes + arrived;
        }

        private void block(Socket connection, SocketChannel channel, int port, int number) throws Exception {
            switch (this) {
                case READ:
                    expect(SocketException.class, () -> connection.getInputStream().read(), connection::close);
                    break;
                case TIMED_READ:
                    connection.setSoTimeout(LONG_SECONDS * 1000);
                    expect(SocketException.class, () -> connection.getInputStream().read(), connection::close);
                    break;
                case CHANNEL_READ:
                    expect(AsynchronousCloseException.class, () -> channel.read(ByteBuffer.allocate(1)), channel::close);
                    break;
                case INTERRUPTED_READ:
                    expect(ClosedByInterruptException.class, () -> channel.read(ByteBuffer.allocate(1)), null);
                    break;
                case WRITE:
                    byte[] data = Peers.content(number, LARGE);
                    expect(SocketException.class, () -> connection.getOutputStream().write(data), () -> {
                        CloseBlocked.arriving(port, number);
                        connection.close();
                    });
                    break;
                default:
                    ByteBuffer all = ByteBuffer.wrap(Peers.content(number, LARGE));
                    // A write that has done a part returns; it is the next one that finds the channel closed.
                    expect(ClosedChannelException.class, () -> {
                        while (true) {
                            channel.write(all);
                        }
                    }, () -> {
                        CloseBlocked.arriving(port, number);
                        channel.close();
                    });
            }
        }
    }

    /** Without an `other`, the blocked thread is interrupted. */
    private static void expect(Class<?> error, Peers.Action blocked, Peers.Action other) throws Exception {
        CountDownLatch begun = new CountDownLatch(1);
        Thread[] thread = {null};
        Future<Void> result = Peers.THREADS.submit((Callable<Void>) () -> {
            thread[0] = Thread.currentThread();
            begun.countDown();
            blocked.run();
            return null;
        });
        begun.await();
        // If it is not blocked by then, the outcome is the same.
        Thread.sleep(MAKES_IT_BLOCK_MS);
        if (other == null) {
            thread[0].interrupt();
        } else {
            other.run();
        }
        try {
            result.get(LONG_SECONDS, TimeUnit.SECONDS);
        } catch (ExecutionException met) {
            Throwable cause = met.getCause();
            Peers.check(error.isInstance(cause), cause + " where " + error.getName() + " should be");
            return;
        }
        throw new IllegalStateException("the blocked call returned by itself");
    }

    private static void acceptBlocked() throws Exception {
        ServerSocket listener = Peers.listen();
        expect(SocketException.class, listener::accept, listener::close);
    }

    private static long echoes(Socket connection, int number) throws Exception {
        DataOutputStream out = new DataOutputStream(connection.getOutputStream());
        out.writeInt(number);
        long bytes = 0;
        for (int trip = 0; trip < 40; trip++) {
            byte[] message = Peers.content(number * 100 + trip, 1 + (number * 37 + trip * 101) % 3000);
            out.writeInt(message.length);
            out.write(message);
            Peers.compare(Peers.exactly(connection.getInputStream(), message.length), message, "echo " + trip);
            bytes += message.length;
        }
        out.writeInt(0);
        return bytes;
    }

    /** Waits until the server has bytes that it does not read. */
    private static void arriving(int port, int number) throws Exception {
        try (Socket control = ask(port, number, true)) {
            Peers.check(control.getInputStream().read() == 1, "the server does not say that bytes arrive");
        }
    }

    private static int ended(int port, int number) throws Exception {
        try (Socket control = ask(port, number, false)) {
            return new DataInputStream(control.getInputStream()).readInt();
        }
    }

    private static Socket ask(int port, int number, boolean whetherBytesArrive) throws Exception {
        Socket control = Peers.connect(port);
        control.setSoTimeout(2 * LONG_SECONDS * 1000);
        DataOutputStream out = new DataOutputStream(control.getOutputStream());
        out.writeInt(-1 - number);
        out.writeBoolean(whetherBytesArrive);
        return control;
    }
}
