<?php
// Publishes and gets messages with php-amqplib: `publish EXCHANGE KEY` or `get QUEUE`.

require 'PhpAmqpLib/autoload.php';
require __DIR__ . '/typed.php';

use PhpAmqpLib\Connection\AMQPStreamConnection;
use PhpAmqpLib\Message\AMQPMessage;
use PhpAmqpLib\Wire\AMQPAbstractCollection as Type;
use PhpAmqpLib\Wire\AMQPArray;
use PhpAmqpLib\Wire\AMQPDecimal;
use PhpAmqpLib\Wire\AMQPTable;

$url = parse_url(getenv('AMQP_URL'));
$vhost = urldecode(substr($url['path'] ?? '/%2f', 1)) ?: '/';
$login = [urldecode($url['user']), urldecode($url['pass'])];
$connection = new AMQPStreamConnection($url['host'], $url['port'], $login[0], $login[1], $vhost);
$channel = $connection->channel();

function headers(): AMQPTable
{
    $headers = new AMQPTable([
        'text' => 'grün 緑',
        'empty text' => '',
        'true' => true,
        'false' => false,
        'small' => 7,
        'negative' => -7,
        'largest' => PHP_INT_MAX,
        'smallest' => PHP_INT_MIN,
        'float' => 0.1,
        'decimal' => new AMQPDecimal(123456, 2),
        'time' => new DateTime('@2000000000'),
        'nothing' => null,
        'list' => new AMQPArray([1, 'two', new AMQPArray([3.5]), new AMQPTable(['four' => '4'])]),
        'table' => new AMQPTable(['one' => 1, 'deeper' => new AMQPTable(['two' => 1 << 40])]),
        'empty table' => new AMQPTable(),
        'x-mine' => 'kept',
    ]);
    $headers->set('bytes', "\x00\xff\xfe", Type::T_BYTES);
    $headers->set('byte', -7, Type::T_INT_SHORTSHORT);
    $headers->set('unsigned byte', 200, Type::T_INT_SHORTSHORT_U);
    $headers->set('short', -32768, Type::T_INT_SHORT);
    $headers->set('unsigned short', 65535, Type::T_INT_SHORT_U);
    $headers->set('unsigned int', 4294967295, Type::T_INT_LONG_U);
    return $headers;
}

if ($argv[1] === 'publish') {
    $channel->confirm_select();
    $channel->basic_publish(new AMQPMessage("\x00\xff\xfe grün\n", [
        'content_type' => 'application/x-grün',
        'content_encoding' => 'identity',
        'application_headers' => headers(),
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
        'cluster_id' => 'the cluster',
    ]), $argv[2], $argv[3], true);
    $channel->wait_for_pending_acks(30);
} else {
    $got = $channel->basic_get($argv[2], true);
    $properties = $got->get_properties();
    $headers = $properties['application_headers'];
    unset($properties['application_headers']);
    show($got->getRoutingKey(), $properties, $headers->getNativeData(), $got->getBody());
}
$channel->close();
$connection->close();
