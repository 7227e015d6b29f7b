import java.net.Socket;

/** Blocking sockets in many threads at once: echoes, then a stream, then the end of both directions. */
public final class Echoes {
    private static final int CONNECTIONS = 120;
    private static final int BYTES = 300_000;

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("server")) {
            Peers.serve(Peers.listen(), Peers::echo);
        }
        int port = Integer.parseInt(arguments[1]);
        Peers.result(CONNECTIONS, Peers.each(CONNECTIONS, CONNECTIONS, seed -> talk(port, seed)));
    }

    private static long talk(int port, int seed) throws Exception {
        try (Socket connection = Peers.connect(port)) {
            long bytes = Peers.roundTrips(connection, seed) + Peers.stream(connection, seed, BYTES);
            connection.shutdownOutput();
            Peers.expectEnd(connection);
            return bytes;
        }
    }
}
