"""Publishes and gets messages with aio-pika: `publish EXCHANGE KEY` or `get QUEUE`."""

import asyncio
import os
import sys

import aio_pika

import message

PROPERTIES = {
    "content_type": "application/x-grün",
    "content_encoding": "identity",
    "delivery_mode": aio_pika.DeliveryMode.NOT_PERSISTENT,
    "priority": 3,
    "correlation_id": "the correlation",
    "reply_to": "the reply queue",
    "expiration": 86400,
    "message_id": "the message",
    "timestamp": 2_000_000_000,
    "type": "the type",
    "user_id": os.environ["AMQP_USER"],
    "app_id": "the application",
}


async def main():
    async with await aio_pika.connect(os.environ["AMQP_URL"]) as connection:
        channel = await connection.channel()
        match sys.argv[1:]:
            case "publish", exchange, key:
                # aio-pika writes bytes only if they are a bytearray.
                headers = message.changed(message.HEADERS, bytes, bytearray)
                exchange = await channel.get_exchange(exchange, ensure=False)
                await exchange.publish(aio_pika.Message(message.BODY, headers=headers, **PROPERTIES), key)
            case "get", queue:
                got = await (await channel.get_queue(queue, ensure=False)).get(no_ack=True)
                properties = {name: getattr(got, name) for name in PROPERTIES}
                message.show(got.routing_key, properties, got.headers, got.body)


asyncio.run(main())
