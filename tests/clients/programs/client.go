// Publishes and gets messages with amqp091-go: `publish EXCHANGE KEY` or `get QUEUE`.
package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log"
	"math"
	"os"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

var at = time.Unix(2_000_000_000, 0)

var message = amqp.Publishing{
	ContentType:     "application/x-grün",
	ContentEncoding: "identity",
	DeliveryMode:    amqp.Transient,
	Priority:        3,
	CorrelationId:   "the correlation",
	ReplyTo:         "the reply queue",
	Expiration:      "86400000",
	MessageId:       "the message",
	Timestamp:       at,
	Type:            "the type",
	UserId:          os.Getenv("AMQP_USER"),
	AppId:           "the application",
	Body:            []byte("\x00\xff\xfe gr\xc3\xbcn\n"),
	Headers: amqp.Table{
		"text":             "grün 緑",
		"empty text":       "",
		"bytes":            []byte{0, 0xff, 0xfe},
		"true":             true,
		"false":            false,
		"byte":             byte(200),
		"int8":             int8(-7),
		"int16":            int16(math.MinInt16),
		"int32":            int32(math.MinInt32),
		"int":              7,
		"int64":            int64(math.MaxInt64),
		"smallest":         int64(math.MinInt64),
		"float32":          float32(0.1),
		"float64":          0.1,
		"tiny":             math.SmallestNonzeroFloat64,
		"decimal":          amqp.Decimal{Scale: 2, Value: 123456},
		"negative decimal": amqp.Decimal{Scale: 2, Value: -123456},
		"time":             at,
		"nothing":          nil,
		"list":             []interface{}{int32(1), "two", []interface{}{3.5, nil}, amqp.Table{"four": []byte{0xff}}},
		"empty list":       []interface{}{},
		"table":            amqp.Table{"one": int16(1), "deeper": amqp.Table{"two": int64(1 << 40)}},
		"empty table":      amqp.Table{},
		"x-mine":           "kept",
	},
}

// The value with the name of its type at each level.
func typed(value interface{}) interface{} {
	inside := map[string]interface{}{}
	switch value := value.(type) {
	case amqp.Table:
		for name, field := range value {
			inside[name] = typed(field)
		}
		return inside
	case []interface{}:
		items := []interface{}{}
		for _, item := range value {
			items = append(items, typed(item))
		}
		return items
	case []byte:
		return "bytes " + hex.EncodeToString(value)
	case time.Time:
		return fmt.Sprintf("time %d", value.Unix())
	default:
		return fmt.Sprintf("%T %v", value, value)
	}
}

func run(channel *amqp.Channel, mode string, arguments []string) error {
	if mode == "publish" {
		if err := channel.Confirm(false); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		exchange, key := arguments[0], arguments[1]
		confirm, err := channel.PublishWithDeferredConfirmWithContext(ctx, exchange, key, true, false, message)
		if err != nil {
			return err
		}
		if confirmed, err := confirm.WaitContext(ctx); err != nil || !confirmed {
			return fmt.Errorf("the broker refused the message: %v", err)
		}
		return nil
	}
	got, found, err := channel.Get(arguments[0], true)
	if err != nil || !found {
		return fmt.Errorf("there is no message: %v", err)
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]interface{}{
		"routing_key": got.RoutingKey,
		"properties": map[string]interface{}{
			"content_type":     got.ContentType,
			"content_encoding": got.ContentEncoding,
			"delivery_mode":    got.DeliveryMode,
			"priority":         got.Priority,
			"correlation_id":   got.CorrelationId,
			"reply_to":         got.ReplyTo,
			"expiration":       got.Expiration,
			"message_id":       got.MessageId,
			"timestamp":        got.Timestamp.Unix(),
			"type":             got.Type,
			"user_id":          got.UserId,
			"app_id":           got.AppId,
		},
		"headers": typed(got.Headers),
		"body":    hex.EncodeToString(got.Body),
	})
}

func main() {
	connection, err := amqp.Dial(os.Getenv("AMQP_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	channel, err := connection.Channel()
	if err != nil {
		log.Fatal(err)
	}
	if err := run(channel, os.Args[1], os.Args[2:]); err != nil {
		log.Fatal(err)
	}
}
