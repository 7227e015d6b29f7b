import java.io.IOException;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;

/**
 * One Selector with many channels, each of which is replaced by a new one as soon as it has ended. They end in turn by
 * a half-close, by a close without one, by a close in another thread while the Selector may be waiting, and by leaving
 * the Selector to go on as a blocking channel.
 */
public final class Reopen {
    private static final int WIDTH = 150;
    private static final int CHANNELS = 1200;
    private static final int WAYS = 4;

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("server")) {
            EchoServer.main(new String[] {"nio"});
        }
        new Reopen(Integer.parseInt(arguments[1])).run();
    }

    private final int port;
    private final Selector selector = Selector.open();
    private final List<SocketChannel> leaving = new ArrayList<>();
    private int opened;
    private int open;
    private long bytes;

    private Reopen(int port) throws IOException {
        this.port = port;
    }

    private void run() throws Exception {
        while (opened < WIDTH) {
            openNext();
        }
        while (open > 0) {
            selector.select();
            for (Iterator<SelectionKey> ready = selector.selectedKeys().iterator(); ready.hasNext(); ready.remove()) {
                SelectionKey key = ready.next();
                // A channel that another thread is closing may still be among the selected ones.
                if (key.isValid() && !((Talk) key.attachment()).done) {
                    step(key, (Talk) key.attachment());
                }
            }
            takeOut();
        }
        Peers.result(CHANNELS, bytes);
    }

    private static final class Talk {
        final int way;
        final byte[] wanted;
        final ByteBuffer outgoing;
        final ByteBuffer received;
        boolean done;

        Talk(int number) {
            way = number % WAYS;
            wanted = Peers.content(number, 1 + number * 7919 % 40_000);
            outgoing = ByteBuffer.wrap(wanted);
            received = ByteBuffer.allocateDirect(wanted.length + 1);
        }
    }

    private void openNext() throws IOException {
        SocketChannel channel = SocketChannel.open();
        channel.configureBlocking(false);
        channel.register(selector, SelectionKey.OP_CONNECT, new Talk(opened++));
        channel.connect(Peers.address(port));
        open++;
    }

    private void step(SelectionKey key, Talk talk) throws Exception {
        SocketChannel channel = (SocketChannel) key.channel();
        if (key.isConnectable() && channel.finishConnect()) {
            key.interestOps(SelectionKey.OP_READ | SelectionKey.OP_WRITE);
        }
        if (key.isWritable()) {
            write(key, channel, talk);
        }
        if (key.isReadable()) {
            int n = channel.read(talk.received);
            Peers.check(n >= 0 || talk.way == 0, "the server ended first");
            boolean all = talk.way == 0 ? n < 0 : talk.received.position() == talk.wanted.length;
            if (all) {
                end(key, channel, talk);
            }
        }
    }

    private void write(SelectionKey key, SocketChannel channel, Talk talk) throws IOException {
        ByteBuffer piece = talk.outgoing.duplicate();
        piece.limit(Math.min(piece.limit(), piece.position() + 3_000));
        talk.outgoing.position(talk.outgoing.position() + channel.write(piece));
        if (!talk.outgoing.hasRemaining()) {
            key.interestOps(SelectionKey.OP_READ);
            if (talk.way == 0) {
                channel.shutdownOutput();
            }
        }
    }

    private void end(SelectionKey key, SocketChannel channel, Talk talk) throws Exception {
        byte[] got = new byte[talk.received.flip().limit()];
        talk.received.get(got);
        Peers.compare(got, talk.wanted, "way " + talk.way);
        talk.done = true;
        if (talk.way == 2) {
            Peers.background(channel::close);
        } else if (talk.way == 3) {
            key.cancel();
            leaving.add(channel);
        } else {
            channel.close();
        }
        bytes += got.length;
        open--;
        if (opened < CHANNELS) {
            openNext();
        }
    }

    /** Channels can become blocking ones when a select() has taken them out of the epoll set. */
    private void takeOut() throws IOException {
        if (leaving.isEmpty()) {
            return;
        }
        selector.selectNow();
        selector.selectedKeys().clear(); // what is ready will be ready again
        for (SocketChannel channel : leaving) {
            channel.configureBlocking(true);
            Peers.background(() -> goOnBlocking(channel));
        }
        leaving.clear();
    }

    private static void goOnBlocking(SocketChannel channel) throws IOException {
        try (channel) {
            Socket connection = channel.socket();
            Peers.roundTrips(connection, 7);
            connection.shutdownOutput();
            Peers.expectEnd(connection);
        }
    }
}
