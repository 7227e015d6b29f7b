import java.io.ByteArrayInputStream;
import java.io.InputStream;
import java.net.http.HttpClient;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLServerSocket;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.TrustManagerFactory;

/**
 * TLS: SSLSocket echoes in 1.2 and 1.3 ("sockets"), or HttpsServer and HttpClient ("https"). TLS=sockets|https says
 * which, CERTIFICATES names the directory of cert.pem and key.pem.
 */
public final class Secure {
    private static final int CONNECTIONS = 12;
    private static final int BYTES = 1_000_000;
    private static final char[] NO_PASSWORD = {};

    public static void main(String[] arguments) throws Exception {
        boolean https = System.getenv("TLS").equals("https");
        if (arguments[0].equals("server")) {
            if (https) {
                HttpKeepAlive.serve(context());
            } else {
                Peers.serve((SSLServerSocket) context().getServerSocketFactory()
                    .createServerSocket(0, 128, Peers.HOST), Secure::echo);
            }
        } else if (https) {
            HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1)
                .sslContext(context()).build();
            new HttpKeepAlive("https://localhost:" + arguments[1], client).run();
        } else {
            int port = Integer.parseInt(arguments[1]);
            SSLContext context = context();
            Peers.result(2 * CONNECTIONS, Peers.each(2 * CONNECTIONS, CONNECTIONS, n -> talk(context, port, n)));
        }
    }

    /** Shows the certificate, and trusts it and no other. */
    private static SSLContext context() throws Exception {
        Path directory = Path.of(System.getenv("CERTIFICATES"));
        Certificate certificate = CertificateFactory.getInstance("X.509")
            .generateCertificate(new ByteArrayInputStream(Files.readAllBytes(directory.resolve("cert.pem"))));
        String pem = Files.readString(directory.resolve("key.pem")).replaceAll("-----[^-]*-----|\\s", "");
        PrivateKey key = KeyFactory.getInstance("EC")
            .generatePrivate(new PKCS8EncodedKeySpec(Base64.getDecoder().decode(pem)));
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, NO_PASSWORD);
        store.setKeyEntry("key", key, NO_PASSWORD, new Certificate[] {certificate});
        store.setCertificateEntry("certificate", certificate);
        KeyManagerFactory keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        keys.init(store, NO_PASSWORD);
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(store);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(keys.getKeyManagers(), trust.getTrustManagers(), null);
        return context;
    }

    /** Without half-close, which TLS 1.2 does not have. */
    private static void echo(java.net.Socket connection) throws Exception {
        byte[] buffer = new byte[16_384];
        InputStream in = connection.getInputStream();
        for (int n; (n = in.read(buffer)) >= 0; ) {
            connection.getOutputStream().write(buffer, 0, n);
        }
    }

    private static long talk(SSLContext context, int port, int seed) throws Exception {
        try (SSLSocket connection = (SSLSocket) context.getSocketFactory().createSocket(Peers.HOST, port)) {
            String version = seed % 2 == 0 ? "TLSv1.2" : "TLSv1.3";
            connection.setEnabledProtocols(new String[] {version});
            long bytes = Peers.roundTrips(connection, seed) + Peers.stream(connection, seed, BYTES);
            Peers.check(connection.getSession().getProtocol().equals(version), "not " + version);
            return bytes;
        }
    }
}
