<?php
// Publishes and gets messages with PHP's extension amqp: `publish EXCHANGE KEY` or `get QUEUE`.

require __DIR__ . '/typed.php';

$url = parse_url(getenv('AMQP_URL'));
$connection = new AMQPConnection([
    'host' => $url['host'],
    'port' => $url['port'],
    'login' => urldecode($url['user']),
    'password' => urldecode($url['pass']),
    'vhost' => urldecode(substr($url['path'] ?? '/%2f', 1)) ?: '/',
]);
$connection->connect();
$channel = new AMQPChannel($connection);

if ($argv[1] === 'publish') {
    $exchange = new AMQPExchange($channel);
    $exchange->setName($argv[2]);
    $channel->confirmSelect();
    $channel->setConfirmCallback(fn () => false, fn () => exit(1));
    $exchange->publish("\x00\xff\xfe grün\n", $argv[3], AMQP_MANDATORY, [
        'content_type' => 'application/x-grün',
        'content_encoding' => 'identity',
        'delivery_mode' => 1,
        'priority' => 3,
        'correlation_id' => 'the correlation',
        'reply_to' => 'the reply queue',
        'expiration' => '86400000',
        'message_id' => 'the message',
        'timestamp' => 2000000000,
        'type' => 'the type',
        'user_id' => getenv('AMQP_USER'),
        'app_id' => 'the application',
        'headers' => [
            'text' => 'grün 緑',
            'empty text' => '',
            'bytes' => "\x00\xff\xfe",
            'true' => true,
            'false' => false,
            'small' => 7,
            'negative' => -7,
            'largest' => PHP_INT_MAX,
            'smallest' => PHP_INT_MIN,
            'float' => 0.1,
            'tiny' => PHP_FLOAT_MIN,
            'decimal' => new AMQPDecimal(2, 123456),
            'time' => new AMQPTimestamp(2000000000),
            'nothing' => null,
            'list' => [1, 'two', [3.5, null], ['four' => '4']],
            'empty list' => [],
            'table' => ['one' => 1, 'deeper' => ['two' => 1 << 40]],
            'x-mine' => 'kept',
        ],
    ]);
    $channel->waitForConfirm(30);
} else {
    $queue = new AMQPQueue($channel);
    $queue->setName($argv[2]);
    $got = $queue->get(AMQP_AUTOACK);
    show($got->getRoutingKey(), [
        'content_type' => $got->getContentType(),
        'content_encoding' => $got->getContentEncoding(),
        'delivery_mode' => $got->getDeliveryMode(),
        'priority' => $got->getPriority(),
        'correlation_id' => $got->getCorrelationId(),
        'reply_to' => $got->getReplyTo(),
        'expiration' => $got->getExpiration(),
        'message_id' => $got->getMessageId(),
        'timestamp' => $got->getTimestamp(),
        'type' => $got->getType(),
        'user_id' => $got->getUserId(),
        'app_id' => $got->getAppId(),
    ], $got->getHeaders(), $got->getBody());
}
