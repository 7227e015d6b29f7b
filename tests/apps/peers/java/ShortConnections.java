import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.net.Socket;

/** Thousands of short connections; either side closes first. */
public final class ShortConnections {
    private static final int CONNECTIONS = 3000;
    private static final int WIDTH = 16;

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("server")) {
            Peers.serve(Peers.listen(), ShortConnections::serve);
        }
        int port = Integer.parseInt(arguments[1]);
        Peers.result(CONNECTIONS, Peers.each(CONNECTIONS, WIDTH, number -> talk(port, number)));
    }

    /** Even numbers: the server is the first to close. */
    private static void serve(Socket connection) throws Exception {
        DataInputStream in = new DataInputStream(connection.getInputStream());
        int number = in.readInt();
        int size = in.readInt();
        connection.getOutputStream().write(Peers.content(number, size));
        if (number % 2 != 0) {
            Peers.expectEnd(connection);
        }
    }

    private static long talk(int port, int number) throws Exception {
        int size = number % 100 == 0 ? 200_000 : number * 31 % 2000;
        try (Socket connection = Peers.connect(port)) {
            DataOutputStream out = new DataOutputStream(connection.getOutputStream());
            out.writeInt(number);
            out.writeInt(size);
            byte[] got = number % 2 == 0 ? connection.getInputStream().readAllBytes()
                                         : Peers.exactly(connection.getInputStream(), size);
            Peers.compare(got, Peers.content(number, size), "connection " + number);
            return size;
        }
    }
}
