import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketTimeoutException;

/** SO_TIMEOUT of sockets and listeners: it comes, not too early, loses nothing, and does not come to the busy. */
public final class Timeouts {
    private static final int SHORT_MS = 150;
    private static final int LONG_MS = 10_000;
    private static final int CONNECTIONS = 8;
    private static final int ROUNDS = 4;
    private static final int BYTES = 200_000;

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("server")) {
            Peers.serve(Peers.listen(), Peers::echo);
        }
        int port = Integer.parseInt(arguments[1]);
        acceptInVain();
        Peers.result(CONNECTIONS, Peers.each(CONNECTIONS, CONNECTIONS, seed -> talk(port, seed)));
    }

    private static void expectTimeout(Peers.Action action) throws Exception {
        long started = System.nanoTime();
        try {
            action.run();
        } catch (SocketTimeoutException expected) {
            long waited = (System.nanoTime() - started) / 1_000_000;
            Peers.check(waited >= SHORT_MS - 5, "a timeout after " + waited + " of " + SHORT_MS + " ms");
            return;
        }
        throw new IllegalStateException("no timeout");
    }

    private static void acceptInVain() throws Exception {
        try (ServerSocket listener = Peers.listen()) {
            listener.setSoTimeout(SHORT_MS);
            expectTimeout(listener::accept);
        }
    }

    private static long talk(int port, int seed) throws Exception {
        try (Socket connection = Peers.connect(port)) {
            long bytes = 0;
            for (int round = 0; round < ROUNDS; round++) {
                bytes += Peers.roundTrips(connection, seed + 10 * round);
                connection.setSoTimeout(SHORT_MS);
                expectTimeout(() -> connection.getInputStream().read());
                connection.getOutputStream().write(new byte[] {1, 2, 3});
                // A read that finds a part of what it wants, and then nothing more in time.
                byte[] start = new byte[5];
                int[] got = {0};
                expectTimeout(() -> {
                    while (true) {
                        got[0] += connection.getInputStream().read(start, got[0], 5 - got[0]);
                    }
                });
                Peers.compare(start, new byte[] {1, 2, 3, 0, 0}, "what came before the timeout");
                connection.setSoTimeout(LONG_MS);
                bytes += 3 + Peers.stream(connection, seed, BYTES);
            }
            connection.shutdownOutput();
            Peers.expectEnd(connection);
            return bytes;
        }
    }
}
