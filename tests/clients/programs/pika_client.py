"""Publishes and gets messages with pika: `publish EXCHANGE KEY` or `get QUEUE`."""

import os
import sys

import pika

import message

PROPERTIES = {
    "content_type": "application/x-grün",
    "content_encoding": "identity",
    "delivery_mode": 1,
    "priority": 3,
    "correlation_id": "the correlation",
    "reply_to": "the reply queue",
    "expiration": "86400000",
    "message_id": "the message",
    "timestamp": 2_000_000_000,
    "type": "the type",
    "user_id": os.environ["AMQP_USER"],
    "app_id": "the application",
    "cluster_id": "the cluster",
}

connection = pika.BlockingConnection(pika.URLParameters(os.environ["AMQP_URL"]))
channel = connection.channel()
match sys.argv[1:]:
    case "publish", exchange, key:
        channel.confirm_delivery()
        # pika writes no floats.
        headers = message.changed(message.HEADERS, float, str)
        properties = pika.BasicProperties(**PROPERTIES, headers=headers)
        channel.basic_publish(exchange, key, message.BODY, properties, mandatory=True)
    case "get", queue:
        method, properties, body = channel.basic_get(queue, auto_ack=True)
        decoded = {name: getattr(properties, name) for name in PROPERTIES}
        message.show(method.routing_key, decoded, properties.headers, body)
connection.close()
