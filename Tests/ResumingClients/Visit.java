import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.security.cert.X509Certificate;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.TrustManager;
import javax.net.ssl.X509TrustManager;

/** Java's JSSE: visits a port of 127.0.0.1 four times with TLS 1.2, and four times with TLS 1.3. */
class Visit {
    private static final X509TrustManager anyone = new X509TrustManager() {
        public void checkClientTrusted(X509Certificate[] chain, String type) {}

        public void checkServerTrusted(X509Certificate[] chain, String type) {}

        public X509Certificate[] getAcceptedIssuers() {
            return new X509Certificate[0];
        }
    };

    public static void main(String[] arguments) throws Exception {
        for (String version : new String[] {"TLSv1.2", "TLSv1.3"}) {
            SSLContext context = SSLContext.getInstance("TLS");
            context.init(null, new TrustManager[] {anyone}, null);
            for (int number = 0; number < 4; number++) {
                int port = Integer.parseInt(arguments[0]);
                try (SSLSocket socket = (SSLSocket) context.getSocketFactory().createSocket("127.0.0.1", port)) {
                    socket.setEnabledProtocols(new String[] {version});
                    socket.getOutputStream().write("GET / HTTP/1.0\r\n\r\n".getBytes(StandardCharsets.US_ASCII));
                    InputStream answer = socket.getInputStream();
                    while (answer.read() != -1) {}
                    System.out.println(version + " " + socket.getSession().getCreationTime());
                }
            }
        }
    }
}
