export default async () => [{ vars: { a: 5, b: 5, sum: 10 }, assert: [{ type: 'javascript', value: 'eval(output.split("=")[0]) === Number(output.split("=")[1])' }] }]
