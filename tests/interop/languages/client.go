// gRPC's interoperation tests with grpc-go: client HOST:PORT. Ends with 0 when all cases pass, and names those that do not.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "tests.interop/grpc_testing"
)

var inputs = []int{27182, 8, 1828, 45904}
var outputs = []int32{31415, 9, 2653, 58979}

func payload(size int) *pb.Payload { return &pb.Payload{Body: make([]byte, size)} }

func outputRequest(size int, wanted ...int32) *pb.StreamingOutputCallRequest {
	request := &pb.StreamingOutputCallRequest{Payload: payload(size)}
	for _, one := range wanted {
		request.ResponseParameters = append(request.ResponseParameters, &pb.ResponseParameters{Size: one})
	}
	return request
}

func check(fine bool, format string, values ...interface{}) {
	if !fine {
		panic(fmt.Sprintf(format, values...))
	}
}

func checkCode(err error, wanted codes.Code) {
	check(status.Code(err) == wanted, "%v instead of %v", err, wanted)
}

var large = &pb.SimpleRequest{ResponseSize: 314159, Payload: payload(271828)}

var cases = []struct {
	name string
	run  func(context.Context, pb.TestServiceClient)
}{
	{"empty_unary", func(ctx context.Context, stub pb.TestServiceClient) {
		_, err := stub.EmptyCall(ctx, &pb.Empty{})
		checkCode(err, codes.OK)
	}},
	{"large_unary", func(ctx context.Context, stub pb.TestServiceClient) {
		for _, options := range [][]grpc.CallOption{nil, {grpc.UseCompressor(gzip.Name)}} {
			answer, err := stub.UnaryCall(ctx, large, options...)
			checkCode(err, codes.OK)
			check(len(answer.Payload.Body) == 314159, "%d bytes", len(answer.Payload.Body))
		}
	}},
	{"client_streaming", func(ctx context.Context, stub pb.TestServiceClient) {
		call, err := stub.StreamingInputCall(ctx)
		checkCode(err, codes.OK)
		for _, size := range inputs {
			checkCode(call.Send(&pb.StreamingInputCallRequest{Payload: payload(size)}), codes.OK)
		}
		answer, err := call.CloseAndRecv()
		checkCode(err, codes.OK)
		check(answer.AggregatedPayloadSize == 74922, "%d bytes", answer.AggregatedPayloadSize)
	}},
	{"server_streaming", func(ctx context.Context, stub pb.TestServiceClient) {
		call, err := stub.StreamingOutputCall(ctx, outputRequest(0, outputs...))
		checkCode(err, codes.OK)
		for _, size := range outputs {
			answer, err := call.Recv()
			checkCode(err, codes.OK)
			check(len(answer.Payload.Body) == int(size), "%d bytes", len(answer.Payload.Body))
		}
		_, err = call.Recv()
		check(err == io.EOF, "%v", err)
	}},
	{"ping_pong", func(ctx context.Context, stub pb.TestServiceClient) {
		call, err := stub.FullDuplexCall(ctx)
		checkCode(err, codes.OK)
		for i, size := range outputs {
			checkCode(call.Send(outputRequest(inputs[i], size)), codes.OK)
			answer, err := call.Recv()
			checkCode(err, codes.OK)
			check(len(answer.Payload.Body) == int(size), "%d bytes", len(answer.Payload.Body))
		}
		checkCode(call.CloseSend(), codes.OK)
		_, err = call.Recv()
		check(err == io.EOF, "%v", err)
	}},
	{"empty_stream", func(ctx context.Context, stub pb.TestServiceClient) {
		call, err := stub.FullDuplexCall(ctx)
		checkCode(err, codes.OK)
		checkCode(call.CloseSend(), codes.OK)
		_, err = call.Recv()
		check(err == io.EOF, "%v", err)
	}},
	{"custom_metadata", func(ctx context.Context, stub pb.TestServiceClient) {
		const initial, trailing = "x-grpc-test-echo-initial", "x-grpc-test-echo-trailing-bin"
		ctx = metadata.AppendToOutgoingContext(ctx, initial, "test_initial_metadata_value", trailing, "\xab\xab\xab")
		var head, tail metadata.MD
		_, err := stub.UnaryCall(ctx, large, grpc.Header(&head), grpc.Trailer(&tail))
		checkCode(err, codes.OK)
		check(fmt.Sprint(head[initial]) == "[test_initial_metadata_value]", "%v", head)
		check(len(tail[trailing]) == 1 && bytes.Equal([]byte(tail[trailing][0]), []byte("\xab\xab\xab")), "%v", tail)
	}},
	{"status_code_and_message", func(ctx context.Context, stub pb.TestServiceClient) {
		for _, message := range []string{"test status message", "\t\ntest with whitespace\r\nand Unicode BMP \u263a and non-BMP \U0001f608\t\n"} {
			_, err := stub.UnaryCall(ctx, &pb.SimpleRequest{ResponseStatus: &pb.EchoStatus{Code: 2, Message: message}})
			checkCode(err, codes.Unknown)
			check(status.Convert(err).Message() == message, "%q", status.Convert(err).Message())
		}
	}},
	{"unimplemented_method", func(ctx context.Context, stub pb.TestServiceClient) {
		_, err := stub.UnimplementedCall(ctx, &pb.Empty{})
		checkCode(err, codes.Unimplemented)
	}},
	{"cancel_after_begin", func(ctx context.Context, stub pb.TestServiceClient) {
		ctx, cancel := context.WithCancel(ctx)
		call, err := stub.StreamingInputCall(ctx)
		checkCode(err, codes.OK)
		cancel()
		_, err = call.CloseAndRecv()
		checkCode(err, codes.Canceled)
	}},
	{"cancel_after_first_response", func(ctx context.Context, stub pb.TestServiceClient) {
		ctx, cancel := context.WithCancel(ctx)
		call, err := stub.FullDuplexCall(ctx)
		checkCode(err, codes.OK)
		checkCode(call.Send(outputRequest(27182, 31415)), codes.OK)
		_, err = call.Recv()
		checkCode(err, codes.OK)
		cancel()
		_, err = call.Recv()
		checkCode(err, codes.Canceled)
	}},
	{"timeout_on_sleeping_server", func(ctx context.Context, stub pb.TestServiceClient) {
		ctx, cancel := context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		call, err := stub.FullDuplexCall(ctx)
		if err == nil {
			_, err = call.Recv()
		}
		checkCode(err, codes.DeadlineExceeded)
	}},
}

func passes(name string, run func()) (fine bool) {
	defer func() {
		if failure := recover(); failure != nil {
			fmt.Println(name+":", failure)
		}
	}()
	run()
	return true
}

func main() {
	channel, err := grpc.Dial(os.Args[1], grpc.WithInsecure())
	checkCode(err, codes.OK)
	failed := 0
	for _, one := range cases {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		if !passes(one.name, func() { one.run(ctx, pb.NewTestServiceClient(channel)) }) {
			failed++
		}
		cancel()
	}
	fmt.Printf("%d of %d cases passed\n", len(cases)-failed, len(cases))
	if failed > 0 {
		os.Exit(1)
	}
}
