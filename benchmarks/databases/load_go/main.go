// Command load_go makes calls as fast as its clients can, and prints how long they took as JSON.
//
// Each client makes its next call as soon as it has read all of the last answer. A gRPC client has a
// connection of its own and sends serialized requests, so no generated code is needed. PostgreSQL
// clients share at most -connections connections, each with one prepared statement, as behind a
// pool.
//
// Requests come from a file of JSON: {"method", "requests"} with base64 for gRPC, {"sql",
// "arguments"} for PostgreSQL. It prints "ready" once every request was made and every client has
// made one, waits for a line, and then begins to measure.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"sort"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

const (
	windowBytes  = 1 << 24
	messageBytes = 1 << 30
	statement    = "s"
	binaryFormat = 1
)

type workload struct {
	Method    string     `json:"method"`
	Requests  [][]byte   `json:"requests"`
	SQL       string     `json:"sql"`
	Arguments [][]string `json:"arguments"`
}

// A caller makes the n-th call and returns the bytes that it has received.
type caller func(ctx context.Context, n int) (int64, error)

type result struct {
	Calls   int     `json:"calls"`
	Seconds float64 `json:"seconds"`
	Bytes   int64   `json:"bytes"`
	P50     float64 `json:"p50_ms"`
	P99     float64 `json:"p99_ms"`
}

// rawCodec passes messages on as they are.
type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error)      { return v.([]byte), nil }
func (rawCodec) Unmarshal(data []byte, v any) error { *v.(*int64) += int64(len(data)); return nil }
func (rawCodec) Name() string                       { return "proto" }

func grpcCaller(target string, work workload) (caller, error) {
	connection, err := grpc.NewClient(
		target,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(rawCodec{}), grpc.MaxCallRecvMsgSize(messageBytes)),
		grpc.WithInitialWindowSize(windowBytes),
		grpc.WithInitialConnWindowSize(windowBytes),
	)
	if err != nil {
		return nil, err
	}
	description := &grpc.StreamDesc{ServerStreams: true}
	return func(ctx context.Context, n int) (int64, error) {
		stream, err := connection.NewStream(ctx, description, work.Method)
		if err != nil {
			return 0, err
		}
		if err := stream.SendMsg(work.Requests[n%len(work.Requests)]); err != nil {
			return 0, err
		}
		if err := stream.CloseSend(); err != nil {
			return 0, err
		}
		var received int64
		for {
			if err := stream.RecvMsg(&received); errors.Is(err, io.EOF) {
				return received, nil
			} else if err != nil {
				return received, err
			}
		}
	}, nil
}

func postgresPool(ctx context.Context, target string, work workload, size int) (chan *pgconn.PgConn, error) {
	pool := make(chan *pgconn.PgConn, size)
	for range size {
		connection, err := pgconn.Connect(ctx, target)
		if err != nil {
			return nil, err
		}
		if _, err := connection.Prepare(ctx, statement, work.SQL, nil); err != nil {
			return nil, err
		}
		pool <- connection
	}
	return pool, nil
}

func postgresCaller(pool chan *pgconn.PgConn, work workload) caller {
	return func(ctx context.Context, n int) (int64, error) {
		connection := <-pool
		defer func() { pool <- connection }()
		arguments := work.Arguments[n%len(work.Arguments)]
		values := make([][]byte, len(arguments))
		for place, argument := range arguments {
			values[place] = []byte(argument)
		}
		rows := connection.ExecPrepared(ctx, statement, values, nil, []int16{binaryFormat})
		var received int64
		for rows.NextRow() {
			for _, value := range rows.Values() {
				received += int64(len(value))
			}
		}
		_, err := rows.Close()
		return received, err
	}
}

func callers(ctx context.Context, kind, target string, work workload, clients, connections int) ([]caller, error) {
	made := make([]caller, clients)
	if kind == "postgres" {
		pool, err := postgresPool(ctx, target, work, min(clients, connections))
		if err != nil {
			return nil, err
		}
		for place := range made {
			made[place] = postgresCaller(pool, work)
		}
		return made, nil
	}
	for place := range made {
		call, err := grpcCaller(target, work)
		if err != nil {
			return nil, err
		}
		made[place] = call
	}
	return made, nil
}

// run lets every client call until the deadline, but at least and at most so many times.
func run(
	ctx context.Context, calls []caller, least, most int, deadline time.Time,
) ([]float64, int64, error) {
	var (
		group sync.WaitGroup
		lock  sync.Mutex
		times []float64
		total int64
		first error
	)
	for number, call := range calls {
		group.Add(1)
		go func() {
			defer group.Done()
			var own []float64
			var received int64
			var failure error
			for n := 0; n < most && failure == nil && (n < least || time.Now().Before(deadline)); n++ {
				began := time.Now()
				size, err := call(ctx, number+n*len(calls))
				own, received, failure = append(own, time.Since(began).Seconds()*1e3), received+size, err
			}
			lock.Lock()
			defer lock.Unlock()
			times, total = append(times, own...), total+received
			if first == nil {
				first = failure
			}
		}()
	}
	group.Wait()
	return times, total, first
}

func measure() error {
	kind := flag.String("kind", "grpc", "grpc or postgres")
	target := flag.String("target", "", "host:port, or a connection string")
	path := flag.String("work", "", "the file of requests")
	clients := flag.Int("clients", 1, "how many call at once")
	connections := flag.Int("connections", 64, "the most connections to PostgreSQL")
	seconds := flag.Float64("seconds", 5, "how long to measure")
	least := flag.Int("least", 1, "the least calls of a client")
	most := flag.Int("calls", 1_000_000, "the most calls of a client")
	flag.Parse()
	content, err := os.ReadFile(*path)
	if err != nil {
		return err
	}
	var work workload
	if err := json.Unmarshal(content, &work); err != nil {
		return err
	}
	limit := time.Duration(*seconds*float64(time.Second)) + 5*time.Minute
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	calls, err := callers(ctx, *kind, *target, work, *clients, *connections)
	if err != nil {
		return err
	}
	different := max(len(work.Requests), len(work.Arguments))
	each := (different + *clients - 1) / *clients
	if _, _, err := run(ctx, calls, each, each, time.Now()); err != nil {
		return err
	}
	fmt.Println("ready")
	lines := bufio.NewReader(os.Stdin)
	if _, err := lines.ReadString('\n'); err != nil {
		return err
	}
	began := time.Now()
	deadline := began.Add(time.Duration(*seconds * float64(time.Second)))
	times, received, err := run(ctx, calls, *least, *most, deadline)
	if err != nil {
		return err
	}
	elapsed := time.Since(began).Seconds()
	sort.Float64s(times)
	quantile := func(share float64) float64 { return times[int(share*float64(len(times)-1))] }
	if err := json.NewEncoder(os.Stdout).Encode(
		result{len(times), elapsed, received, quantile(0.5), quantile(0.99)},
	); err != nil {
		return err
	}
	// Connections stay open until the processor time of the server was read.
	_, err = io.Copy(io.Discard, lines)
	return err
}

func main() {
	if err := measure(); err != nil {
		log.Fatal(err)
	}
}
