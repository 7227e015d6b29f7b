import java.io.InputStream;
import java.net.Socket;
import java.util.concurrent.Callable;
import java.util.concurrent.Future;

/**
 * Ends of one direction only. After the echoes one letter says who ends first: c: the client, s: the server, i: the
 * client stops to read (shutdownInput), r: the same while a thread of it is blocked in read(). Data follows in the
 * direction that is left.
 */
public final class HalfClose {
    private static final String WAYS = "csir";
    private static final int CONNECTIONS = 24;
    private static final int ECHOES = 40;
    private static final int ECHO_BYTES = 1000;
    private static final int BYTES = 200_000;

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("server")) {
            Peers.serve(Peers.listen(), HalfClose::serve);
        }
        int port = Integer.parseInt(arguments[1]);
        Peers.result(CONNECTIONS, Peers.each(CONNECTIONS, CONNECTIONS, seed -> talk(port, seed)));
    }

    private static void serve(Socket connection) throws Exception {
        for (int trip = 0; trip < ECHOES; trip++) {
            connection.getOutputStream().write(Peers.exactly(connection.getInputStream(), ECHO_BYTES));
        }
        int way = connection.getInputStream().read();
        int seed = connection.getInputStream().read();
        if (way == 'c') {
            Peers.expectEnd(connection);
            Peers.send(connection.getOutputStream(), Peers.content(seed, BYTES));
            return;
        }
        if (way == 's') {
            connection.shutdownOutput();
        }
        Peers.compare(connection.getInputStream().readAllBytes(), Peers.content(-seed, BYTES), "way " + (char) way);
    }

    private static long talk(int port, int seed) throws Exception {
        try (Socket connection = Peers.connect(port)) {
            for (int trip = 0; trip < ECHOES; trip++) {
                byte[] message = Peers.content(seed * 100 + trip, ECHO_BYTES);
                connection.getOutputStream().write(message);
                Peers.compare(Peers.exactly(connection.getInputStream(), ECHO_BYTES), message, "echo " + trip);
            }
            char way = WAYS.charAt(seed % WAYS.length());
            connection.getOutputStream().write(new byte[] {(byte) way, (byte) seed});
            return ECHOES * ECHO_BYTES + end(connection, way, seed);
        }
    }

    private static long end(Socket connection, char way, int seed) throws Exception {
        InputStream in = connection.getInputStream(); // which is not given any more after shutdownInput()
        switch (way) {
            case 'c':
                connection.shutdownOutput();
                Peers.compare(connection.getInputStream().readAllBytes(), Peers.content(seed, BYTES), "after the end");
                return BYTES;
            case 's':
                Peers.expectEnd(connection);
                break;
            case 'i':
                connection.shutdownInput();
                Peers.check(in.read() < 0, "a byte after shutdownInput()");
                break;
            default:
                Future<Integer> read = Peers.THREADS.submit((Callable<Integer>) in::read);
                Thread.sleep(20); // so that it is blocked; if it is not yet, the outcome is the same
                connection.shutdownInput();
                Peers.check(read.get() < 0, "the blocked read() found a byte");
        }
        Peers.send(connection.getOutputStream(), Peers.content(-seed, BYTES));
        connection.shutdownOutput();
        return BYTES;
    }
}
