"""Publishes and gets messages with kombu: `publish EXCHANGE KEY` or `get QUEUE`."""

import os
import sys

import kombu

import message

with kombu.Connection(os.environ["AMQP_URL"], transport_options={"confirm_publish": True}) as connection:
    match sys.argv[1:]:
        case "publish", exchange, key:
            connection.Producer().publish(
                message.BODY,
                exchange=exchange,
                routing_key=key,
                mandatory=True,
                headers=message.HEADERS,
                content_type="application/x-grün",
                content_encoding="binary",
                delivery_mode=1,
                priority=3,
                correlation_id="the correlation",
                reply_to="the reply queue",
                expiration=86400,
                message_id="the message",
                timestamp=2_000_000_000,
                type="the type",
                user_id=os.environ["AMQP_USER"],
                app_id="the application",
                cluster_id="the cluster",
            )
        case "get", queue:
            got = kombu.Queue(queue, channel=connection.channel()).get(no_ack=True)
            properties = {name: value for name, value in got.properties.items() if name != "application_headers"}
            properties |= {"content_type": got.content_type, "content_encoding": got.content_encoding}
            message.show(got.delivery_info["routing_key"], properties, got.headers, got.body)
