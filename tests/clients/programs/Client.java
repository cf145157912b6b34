import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.GetResponse;
import com.rabbitmq.client.LongString;
import java.math.BigDecimal;
import java.util.Date;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

/**
 * Publishes and gets messages with the Java client: {@code publish EXCHANGE KEY} or
 * {@code get QUEUE}.
 */
public class Client {
    private static final Date AT = new Date(2_000_000_000_000L);
    private static final byte[] BODY = {0, -1, -2, ' ', 'g', 'r', (byte) 0xc3, (byte) 0xbc, 'n', '\n'};

    private static Map<String, Object> headers() {
        Map<String, Object> headers = new HashMap<>();
        headers.put("text", "grün 緑");
        headers.put("empty text", "");
        headers.put("bytes", new byte[] {0, -1, -2});
        headers.put("true", true);
        headers.put("false", false);
        headers.put("byte", (byte) -7);
        headers.put("short", Short.MIN_VALUE);
        headers.put("int", Integer.MIN_VALUE);
        headers.put("long", Long.MAX_VALUE);
        headers.put("smallest", Long.MIN_VALUE);
        headers.put("float", 0.1f);
        headers.put("double", 0.1);
        headers.put("tiny", Double.MIN_VALUE);
        headers.put("decimal", new BigDecimal("1234.56"));
        headers.put("negative decimal", new BigDecimal("-1234.56"));
        headers.put("time", AT);
        headers.put("nothing", null);
        headers.put("list", List.of(1, "two", List.of(3.5), Map.of("four", new byte[] {-1})));
        headers.put("empty list", List.of());
        headers.put("table", Map.of("one", (short) 1, "deeper", Map.of("two", 1L << 40)));
        headers.put("empty table", Map.of());
        headers.put("x-mine", "kept");
        return headers;
    }

    public static void main(String[] arguments) throws Exception {
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(System.getenv("AMQP_URL"));
        try (Connection connection = factory.newConnection(); Channel channel = connection.createChannel()) {
            if (arguments[0].equals("publish")) {
                channel.confirmSelect();
                channel.basicPublish(arguments[1], arguments[2], true, properties(), BODY);
                channel.waitForConfirmsOrDie(30_000);
            } else {
                show(channel.basicGet(arguments[1], true));
            }
        }
    }

    private static AMQP.BasicProperties properties() {
        return new AMQP.BasicProperties.Builder()
            .contentType("application/x-grün")
            .contentEncoding("identity")
            .deliveryMode(1)
            .priority(3)
            .correlationId("the correlation")
            .replyTo("the reply queue")
            .expiration("86400000")
            .messageId("the message")
            .timestamp(AT)
            .type("the type")
            .userId(System.getenv("AMQP_USER"))
            .appId("the application")
            .clusterId("the cluster")
            .headers(headers())
            .build();
    }

    private static void show(GetResponse got) {
        AMQP.BasicProperties it = got.getProps();
        Map<String, Object> properties = new HashMap<>();
        properties.put("content_type", it.getContentType());
        properties.put("content_encoding", it.getContentEncoding());
        properties.put("delivery_mode", it.getDeliveryMode());
        properties.put("priority", it.getPriority());
        properties.put("correlation_id", it.getCorrelationId());
        properties.put("reply_to", it.getReplyTo());
        properties.put("expiration", it.getExpiration());
        properties.put("message_id", it.getMessageId());
        properties.put("timestamp", it.getTimestamp());
        properties.put("type", it.getType());
        properties.put("user_id", it.getUserId());
        properties.put("app_id", it.getAppId());
        properties.put("cluster_id", it.getClusterId());
        System.out.println(typed(Map.of(
            "routing_key", got.getEnvelope().getRoutingKey(),
            "properties", properties,
            "headers", it.getHeaders(),
            "body", got.getBody())));
    }

    /** JSON in which each value has the name of its class. */
    private static String typed(Object value) {
        if (value instanceof Map<?, ?> map) {
            return map.entrySet().stream()
                .map(entry -> quoted(entry.getKey().toString()) + ": " + typed(entry.getValue()))
                .collect(Collectors.joining(", ", "{", "}"));
        }
        if (value instanceof List<?> list) {
            return list.stream().map(Client::typed).collect(Collectors.joining(", ", "[", "]"));
        }
        String text = switch (value) {
            case null -> "null";
            case byte[] bytes -> "bytes " + HexFormat.of().formatHex(bytes);
            case LongString string -> "text " + HexFormat.of().formatHex(string.getBytes());
            case Date date -> "time " + date.getTime();
            default -> value.getClass().getSimpleName() + " " + value;
        };
        return quoted(text);
    }

    private static String quoted(String text) {
        return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", "\\n") + '"';
    }
}
