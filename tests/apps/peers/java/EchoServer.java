import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.util.Iterator;

/**
 * Echo server, usage: EchoServer blocking|nio [ADDRESS]. "blocking": a thread and a Socket for each connection; "nio": one Selector for
 * all.
 */
public final class EchoServer {
    private static final int BUFFER_BYTES = 65_536;

    public static void main(String[] arguments) throws IOException {
        InetAddress loopback = InetAddress.getLoopbackAddress();
        InetAddress address = arguments.length > 1 ? InetAddress.getByName(arguments[1]) : loopback;
        if (arguments[0].equals("nio")) {
            serveWithSelector(address);
        } else {
            serveWithThreads(address);
        }
    }

    private static void serveWithThreads(InetAddress address) throws IOException {
        try (ServerSocket listener = new ServerSocket(0, 128, address)) {
            System.out.println("listening on " + listener.getLocalPort());
            while (true) {
                Socket connection = listener.accept();
                Thread thread = new Thread(() -> echo(connection));
                thread.setDaemon(true);
                thread.start();
            }
        }
    }

    private static void echo(Socket connection) {
        byte[] buffer = new byte[BUFFER_BYTES];
        try (connection) {
            connection.setTcpNoDelay(true);
            InputStream in = connection.getInputStream();
            OutputStream out = connection.getOutputStream();
            for (int n; (n = in.read(buffer)) >= 0; ) {
                out.write(buffer, 0, n);
            }
            connection.shutdownOutput();
        } catch (IOException error) {
            throw new RuntimeException(error);
        }
    }

    private static void serveWithSelector(InetAddress address) throws IOException {
        Selector selector = Selector.open();
        ServerSocketChannel listener = ServerSocketChannel.open();
        listener.bind(new InetSocketAddress(address, 0), 128);
        listener.configureBlocking(false);
        listener.register(selector, SelectionKey.OP_ACCEPT);
        System.out.println("listening on " + listener.socket().getLocalPort());
        while (true) {
            selector.select();
            for (Iterator<SelectionKey> ready = selector.selectedKeys().iterator(); ready.hasNext(); ready.remove()) {
                SelectionKey key = ready.next();
                if (key.isAcceptable()) {
                    SocketChannel connection = listener.accept();
                    connection.configureBlocking(false);
                    connection.register(selector, SelectionKey.OP_READ, ByteBuffer.allocateDirect(BUFFER_BYTES));
                } else {
                    step(key);
                }
            }
        }
    }

    /** The buffer is either being filled (OP_READ) or, while the peer does not read, being emptied (OP_WRITE). */
    private static void step(SelectionKey key) throws IOException {
        SocketChannel connection = (SocketChannel) key.channel();
        ByteBuffer buffer = (ByteBuffer) key.attachment();
        if (key.isReadable()) {
            if (connection.read(buffer) < 0) {
                connection.shutdownOutput();
                connection.close();
                return;
            }
            buffer.flip();
        }
        connection.write(buffer);
        if (buffer.hasRemaining()) {
            key.interestOps(SelectionKey.OP_WRITE);
        } else {
            buffer.clear();
            key.interestOps(SelectionKey.OP_READ);
        }
    }
}
