import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import com.sun.net.httpserver.HttpsConfigurator;
import com.sun.net.httpserver.HttpsServer;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.net.http.HttpTimeoutException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import javax.net.ssl.SSLContext;

/** com.sun.net.httpserver and java.net.http.HttpClient on kept connections; a request that is given up. */
public final class HttpKeepAlive {
    private static final int THREADS = 6;
    private static final int REQUESTS = 600;
    private static final int ROUNDS = 20;
    private static final int AT_ONCE = 8;
    private static final int PIECE = 7001;

    private final String place;
    private final HttpClient client;
    private final Set<String> connections = ConcurrentHashMap.newKeySet();

    HttpKeepAlive(String place, HttpClient client) {
        this.place = place;
        this.client = client;
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("server")) {
            serve(null);
        } else {
            HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
            new HttpKeepAlive("http://127.0.0.1:" + arguments[1], client).run();
        }
    }

    /** With a context: HTTPS. */
    static void serve(SSLContext context) throws IOException {
        // Else Nagle's algorithm has each body wait for the acknowledgement of its header.
        System.setProperty("sun.net.httpserver.nodelay", "true");
        HttpServer server;
        if (context == null) {
            server = HttpServer.create(Peers.address(0), 128);
        } else {
            HttpsServer secure = HttpsServer.create(Peers.address(0), 128);
            secure.setHttpsConfigurator(new HttpsConfigurator(context));
            server = secure;
        }
        CountDownLatch never = new CountDownLatch(1);
        server.createContext("/echo", HttpKeepAlive::echo);
        server.createContext("/silent", exchange -> {
            try {
                never.await();
            } catch (InterruptedException error) {
                throw new IOException(error);
            }
        });
        server.setExecutor(Peers.THREADS);
        server.start();
        System.out.println("listening on " + server.getAddress().getPort());
    }

    /** Answers with the body; with its length, or in chunks if the query asks for that. */
    private static void echo(HttpExchange exchange) throws IOException {
        byte[] body = exchange.getRequestBody().readAllBytes();
        boolean chunks = "chunks".equals(exchange.getRequestURI().getQuery());
        exchange.getResponseHeaders().set("X-Peer", exchange.getRemoteAddress().toString());
        long length = body.length == 0 ? -1 : body.length; // -1: no body; 0 would mean chunks
        exchange.sendResponseHeaders(200, chunks ? 0 : length);
        try (OutputStream out = exchange.getResponseBody()) {
            for (int at = 0; at < body.length; at += PIECE) {
                out.write(body, at, Math.min(PIECE, body.length - at));
            }
        }
    }

    void run() throws Exception {
        long bytes = Peers.each(REQUESTS, THREADS, this::request);
        giveUp();
        for (int round = 0; round < ROUNDS; round++) {
            bytes += requestsAtOnce(1000 + round * AT_ONCE);
        }
        int all = REQUESTS + ROUNDS * AT_ONCE;
        Peers.check(connections.size() < all / 4, connections.size() + " connections for " + all + " requests");
        Peers.result(connections.size(), bytes);
    }

    private static byte[] body(int number) {
        return Peers.content(number, number % 20 == 0 ? 0 : number * 997 % 60_013);
    }

    private HttpRequest post(int number) {
        byte[] body = body(number);
        URI uri = URI.create(place + "/echo" + (number % 2 == 0 ? "" : "?chunks"));
        // The publisher of a stream knows no length, so that the request goes in chunks.
        return HttpRequest.newBuilder(uri).POST(number % 3 == 0
            ? BodyPublishers.ofInputStream(() -> new ByteArrayInputStream(body))
            : BodyPublishers.ofByteArray(body)).build();
    }

    private long examine(HttpResponse<byte[]> answer, int number) {
        Peers.check(answer.statusCode() == 200, "status " + answer.statusCode());
        Peers.compare(answer.body(), body(number), "answer " + number);
        connections.add(answer.headers().firstValue("X-Peer").orElseThrow());
        return 2L * answer.body().length;
    }

    private long request(int number) throws Exception {
        return examine(client.send(post(number), BodyHandlers.ofByteArray()), number);
    }

    private long requestsAtOnce(int first) throws Exception {
        List<CompletableFuture<Long>> answers = new ArrayList<>();
        for (int i = first; i < first + AT_ONCE; i++) {
            int number = i;
            answers.add(client.sendAsync(post(number), BodyHandlers.ofByteArray())
                              .thenApply(answer -> examine(answer, number)));
        }
        long bytes = 0;
        for (CompletableFuture<Long> answer : answers) {
            bytes += answer.get();
        }
        return bytes;
    }

    private void giveUp() throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(place + "/silent"))
            .timeout(Duration.ofMillis(200)).build();
        try {
            client.send(request, BodyHandlers.ofByteArray());
        } catch (HttpTimeoutException expected) {
            return;
        }
        throw new IllegalStateException("an answer where none should come");
    }
}
