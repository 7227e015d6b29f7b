import java.io.DataInputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/** Echo client, usage: EchoClient blocking|nio PORT CONNECTIONS [ADDRESS [ROUND_TRIPS]]. Compares every byte that comes back. */
public final class EchoClient {
    private static InetAddress address = InetAddress.getLoopbackAddress();
    private static int roundTrips = 50;
    private static final int STREAM_BYTES = 500_000;
    /** Sent without a pause: an upgrade needs some milliseconds, and most bytes are to come after it. */
    private static final int NIO_STREAM_BYTES = 4_000_000;

    public static void main(String[] arguments) throws Exception {
        int port = Integer.parseInt(arguments[1]);
        int connections = Integer.parseInt(arguments[2]);
        if (arguments.length > 3) {
            address = InetAddress.getByName(arguments[3]);
        }
        if (arguments.length > 4) {
            roundTrips = Integer.parseInt(arguments[4]);
        }
        long bytes = arguments[0].equals("nio") ? runNio(port, connections) : runBlocking(port, connections);
        System.out.println("{\"connections\": " + connections + ", \"bytes\": " + bytes + "}");
    }

    private static byte[] content(int seed, int size) {
        byte[] bytes = new byte[size];
        new Random(seed).nextBytes(bytes);
        return bytes;
    }

    private static void compare(byte[] got, byte[] wanted, String what) {
        if (!Arrays.equals(got, wanted)) {
            throw new IllegalStateException(what + " came back changed, first at " + Arrays.mismatch(got, wanted));
        }
    }

    private static long runBlocking(int port, int connections) throws Exception {
        ExecutorService threads = Executors.newCachedThreadPool(EchoClient::daemonThread);
        List<Future<Long>> results = new ArrayList<>();
        for (int number = 0; number < connections; number++) {
            int seed = number;
            results.add(threads.submit((Callable<Long>) () -> talk(port, seed, threads)));
        }
        long bytes = 0;
        for (Future<Long> result : results) {
            bytes += result.get();
        }
        return bytes;
    }

    /** A thread that does not keep the JVM up, be it idle or stuck. */
    private static Thread daemonThread(Runnable work) {
        Thread thread = new Thread(work);
        thread.setDaemon(true);
        return thread;
    }

    private static long talk(int port, int seed, ExecutorService threads) throws Exception {
        try (Socket connection = new Socket(address, port)) {
            connection.setTcpNoDelay(true);
            DataInputStream in = new DataInputStream(connection.getInputStream());
            OutputStream out = connection.getOutputStream();
            long bytes = 0;
            for (int trip = 0; trip < roundTrips; trip++) {
                byte[] message = content(seed * 1000 + trip, 1 + (seed * 37 + trip * 101) % 3000);
                out.write(message);
                byte[] answer = new byte[message.length];
                in.readFully(answer);
                compare(answer, message, "round trip " + trip);
                bytes += message.length;
            }
            byte[] stream = content(seed, STREAM_BYTES);
            Future<?> sender = threads.submit((Callable<Void>) () -> send(connection, out, stream));
            compare(in.readAllBytes(), stream, "stream");
            sender.get();
            return bytes + stream.length;
        }
    }

    private static Void send(Socket connection, OutputStream out, byte[] stream) throws IOException {
        for (int at = 0, size = 1; at < stream.length; at += size, size = size * 7 % 50_021) {
            out.write(stream, at, Math.min(size, stream.length - at));
        }
        connection.shutdownOutput();
        return null;
    }

    /** All connections in one Selector: each sends its stream, half-closes and receives it back. */
    private static long runNio(int port, int connections) throws IOException {
        Selector selector = Selector.open();
        for (int number = 0; number < connections; number++) {
            SocketChannel channel = SocketChannel.open();
            channel.configureBlocking(false);
            // Registered before it is connected, as event-driven programs do.
            channel.register(selector, SelectionKey.OP_CONNECT, new Stream(number));
            channel.connect(new InetSocketAddress(address, port));
        }
        int open = connections;
        while (open > 0) {
            selector.select();
            for (Iterator<SelectionKey> ready = selector.selectedKeys().iterator(); ready.hasNext(); ready.remove()) {
                SelectionKey key = ready.next();
                open -= ((Stream) key.attachment()).step(key) ? 1 : 0;
            }
        }
        return (long) connections * NIO_STREAM_BYTES;
    }

    private static final class Stream {
        private final byte[] wanted;
        private final ByteBuffer outgoing;
        private final ByteBuffer received = ByteBuffer.allocateDirect(NIO_STREAM_BYTES + 1);

        Stream(int number) {
            wanted = content(number, NIO_STREAM_BYTES);
            outgoing = ByteBuffer.wrap(wanted);
        }

        /** Does what is possible now; returns whether the connection has ended. */
        boolean step(SelectionKey key) throws IOException {
            SocketChannel channel = (SocketChannel) key.channel();
            if (key.isConnectable()) {
                channel.finishConnect();
                key.interestOps(SelectionKey.OP_READ | SelectionKey.OP_WRITE);
            }
            if (key.isWritable()) {
                write(key, channel);
            }
            if (key.isReadable() && channel.read(received) < 0) {
                byte[] got = new byte[received.flip().limit()];
                received.get(got);
                compare(got, wanted, "stream");
                channel.close();
                return true;
            }
            return false;
        }

        /** At most so much is on its way as to make the echo answer many times, not once. */
        private void write(SelectionKey key, SocketChannel channel) throws IOException {
            ByteBuffer piece = outgoing.duplicate();
            piece.limit(Math.min(outgoing.limit(), outgoing.position() + 3_000));
            outgoing.position(outgoing.position() + channel.write(piece));
            if (!outgoing.hasRemaining()) {
                channel.shutdownOutput();
                key.interestOps(SelectionKey.OP_READ);
            }
        }
    }
}
